package collective

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-project/weft/collective/internal/ballot"
	"github.com/weft-project/weft/collective/internal/desk"
	"github.com/weft-project/weft/collective/internal/ring"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
)

// hello is what a member says of itself when the group is made. Nonces of all tell the group from
// an earlier one of the same members.
type hello struct {
	Host  string
	Nonce string
}

// Open makes a group of workers: of all of a static world if none are named. Members call it, and
// nobody else, all with the same members in any order; their ranks in the group follow their ranks
// in the job. Groups are told apart by name and members; a member is in one group of a name and
// members at a time. It returns when all have come. It fails with rpc.ErrTimeout, and says who has
// not, when c ends or its deadline passes; with ErrArguments where a name comes twice or this
// worker is not among them; with a [LostError] where a member is lost meanwhile; and as calls do
// where a worker is unknown or gone before.
//
// The order in which groups are made does not matter. Where those that have not come wait in an
// Open themselves, of another group, Open returns without them. The first operation waits for them
// then, and Open's deadline still bounds their coming: a group that has not come together ends.
func Open(c context.Context, w *rpc.Worker, name string, members ...string) (*Group, error) {
	err := startable(w, name)
	var g *Group
	if err == nil {
		g, err = open(c, w, name, members)
	}
	if err != nil {
		return nil, fmt.Errorf("collective: open group %q: %w", name, err)
	}
	return g, nil
}

func open(c context.Context, w *rpc.Worker, name string, names []string) (*Group, error) {
	infos, err := named(c, w, names)
	if err != nil {
		return nil, err
	}
	names = nil
	var roll ballot.Roll
	for _, info := range infos {
		names, roll.Members = append(names, info.Name), append(roll.Members, whoIs(info))
	}
	g := newGroup(w, name, roll)
	g.coming.service = "collective/come/" + digest(append([]string{name}, names...)...)
	if err := g.listen(g.coming.service, g.hearComing); err != nil {
		g.shut()
		return nil, fmt.Errorf("%w: this worker is in such a group already; close that one, or take another name", ErrArguments)
	}
	if err := g.awaitAll(c, g.comeTogether(c, names)); err != nil {
		g.shut()
		return nil, err
	}
	return g, nil
}

// startable says what is wrong with a worker that is to be in a group of that name.
func startable(w *rpc.Worker, name string) error {
	switch {
	case w == nil:
		return fmt.Errorf("%w: no worker", ErrArguments)
	case name == "":
		return fmt.Errorf("%w: a group without a name", ErrArguments)
	}
	return nil
}

// comeTogether has the members meet, beside what goes on, and tells how that ended. c's deadline
// bounds it, but not c's end. Where a member is lost meanwhile it ends with that.
func (g *Group) comeTogether(c context.Context, names []string) <-chan error {
	together, cancel := context.WithCancelCause(context.WithoutCancel(c))
	end := func() {}
	if at, has := c.Deadline(); has {
		together, end = context.WithDeadline(together, at)
	}
	done, over := make(chan error, 1), make(chan struct{})
	g.coming.quit = func(why error) { cancel(why); <-over }
	events := g.w.Peers(together)
	g.runs.Go(func() { g.watch(events) })
	g.runs.Go(func() {
		select {
		case <-g.over:
			cancel(g.Err())
		case <-together.Done():
		}
	})
	go func() {
		defer close(over)
		defer end()
		err := g.assemble(together, names)
		cancel(nil)
		if err != nil {
			g.breakUp(err)
			err = g.Err() // what it ended with first
		}
		done <- err
	}()
	return done
}

// assemble waits until all have come, and then until all take notes. Their service has a name that
// no group before had: what is still on its way to an earlier one of the same members is lost.
func (g *Group) assemble(c context.Context, names []string) error {
	all, err := rpc.Meet(g.w.Context(c), "collective/"+g.name, hello{Host: hostname(), Nonce: rand.Text()}, names...)
	if err != nil {
		return err
	}
	hosts, parts := make([]string, len(names)), []string{g.name}
	for i, name := range names {
		hosts[i] = all[name].Host
		parts = append(parts, name, all[name].Nonce)
	}
	lineage := digest(parts...)
	if err := g.serve("collective/"+lineage, lineage); err != nil {
		return err
	}
	if _, err := rpc.Meet(g.w.Context(c), "collective/"+lineage, struct{}{}, names...); err != nil {
		return err
	}
	g.meet(hosts)
	return nil
}

// digest tells groups apart.
func digest(parts ...string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", parts))
	return fmt.Sprintf("%x", sum[:16])
}

// named finds the workers, in the order of their ranks in the job.
func named(c context.Context, w *rpc.Worker, names []string) ([]rpc.WorkerInfo, error) {
	infos := w.Workers()
	if len(names) == 0 && w.WorldSize() == 0 {
		return nil, fmt.Errorf("%w: in a world in which workers come and go, a group needs names", ErrArguments)
	}
	if len(names) > 0 {
		infos = nil
	}
	for _, name := range names {
		info, err := w.Find(c, name)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(infos, func(o rpc.WorkerInfo) bool { return o.Name == info.Name }) {
			return nil, fmt.Errorf("%w: %s is twice in the group", ErrArguments, info.Name)
		}
		infos = append(infos, info)
	}
	if !slices.ContainsFunc(infos, func(o rpc.WorkerInfo) bool { return o.Name == w.Name() }) {
		return nil, fmt.Errorf("%w: this worker, %s, is not among the members %v", ErrArguments, w.Name(), names)
	}
	slices.SortFunc(infos, func(a, b rpc.WorkerInfo) int { return a.Rank - b.Rank })
	return infos, nil
}

// found makes a group that takes notes. It can be used when all members have one: see meet. lineage
// is the same for all generations.
func found(w *rpc.Worker, name, service, lineage string, roll ballot.Roll) (*Group, error) {
	g := newGroup(w, name, roll)
	if err := g.serve(service, lineage); err != nil {
		g.shut()
		return nil, err
	}
	return g, nil
}

// newGroup makes a group that takes no notes yet.
func newGroup(w *rpc.Worker, name string, roll ballot.Roll) *Group {
	g := &Group{
		w: w, name: name, roll: roll, over: make(chan struct{}), leaving: make(chan struct{}, 1), unwatch: func() {},
		notes: make([]traffic, len(roll.Members)), desk: desk.New[*arrival](), waits: map[desk.Key]*wait{},
		talk: newTalk(len(roll.Members)), window: aheadWindow, ahead: make([]int, len(roll.Members)),
		coming: newComing(), past: ring.New[record](traced), tallies: map[string]*tally{}, hide: func() {},
	}
	g.heardOf.L = &g.mu
	g.buffers.New = func() any { return new(bytes.Buffer) }
	g.life, g.end = context.WithCancel(context.Background())
	g.sound, g.fails = context.WithCancel(context.Background())
	for i, who := range roll.Members {
		if who.Name == w.Name() {
			g.rank = i
		}
		g.members = append(g.members, Member{Rank: i, Worker: who.Name, WorkerRank: who.Rank, Incarnation: who.Life})
	}
	g.voting = newVoting(w, name, roll, roll.Members[g.rank])
	return g
}

// serve has the group take notes.
func (g *Group) serve(service, lineage string) error {
	g.service = service
	g.voting.identify(service, lineage)
	close(g.coming.named)
	return errors.Join(g.listen(service, g.receive), g.listen(service+votes, g.vote))
}

// listen takes the posts of a service, until the group is shut.
func (g *Group) listen(service string, take posts) error {
	stop, err := rpc.OnPost(g.w, service, take)
	if err == nil {
		g.stop = append(g.stop, stop)
	}
	return err
}

// Config of Init. The zero value takes everything from the environment, as weft run and torchrun
// set it.
type Config struct {
	// Name of the group; default "all".
	Name string
	// InitMethod says where the job's store is: "env://" (the default: $RANK, $WORLD_SIZE,
	// $MASTER_ADDR and $MASTER_PORT), "tcp://host:port", "file:///path".
	InitMethod string
	// Rank and WorldSize are this worker's place where WorldSize is not 0 and InitMethod does not say
	// it (as "?rank=0&world_size=2"). They win over the environment.
	Rank, WorldSize int
	// Store is used in place of InitMethod. It stays the caller's.
	Store store.Store
	// Worker is all that else is to be said of the worker. Its Init, Store, Rank and WorldSize stay
	// empty.
	Worker rpc.Config
}

// Init joins the job and gives the group of all its workers. Closing the group, or the last of its
// generations, closes the worker. Without a launcher rank 0 hosts the store; see ErrUnconfirmed.
func Init(c context.Context, cfg Config) (*Group, error) {
	g, err := initialize(c, cfg)
	if err != nil {
		return nil, fmt.Errorf("collective: init: %w", err)
	}
	return g, nil
}

func initialize(c context.Context, cfg Config) (*Group, error) {
	if err := cfg.violations(); err != nil {
		return nil, err
	}
	worker := cfg.Worker
	worker.Init, worker.Store, worker.Rank, worker.WorldSize = cfg.InitMethod, cfg.Store, cfg.Rank, cfg.WorldSize
	w, err := rpc.Join(c, worker)
	if err != nil {
		return nil, err
	}
	g, err := Open(c, w, cmp.Or(cfg.Name, "all"))
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	g.owns = w.Close
	return g, nil
}

// violations reports all that is wrong at once; what Join checks is left to it.
func (cfg Config) violations() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if cfg.Store != nil && cfg.InitMethod != "" {
		bad("both a Store and the InitMethod %q; expected one of them", cfg.InitMethod)
	}
	if cfg.WorldSize == 0 && cfg.Rank != 0 {
		bad("rank %d without a WorldSize; expected both, or none", cfg.Rank)
	}
	if cfg.Store != nil && cfg.WorldSize == 0 {
		bad("a Store without a WorldSize; expected Rank and WorldSize beside it")
	}
	if cfg.WorldSize < 0 || cfg.Rank < 0 || cfg.WorldSize > 0 && cfg.Rank >= cfg.WorldSize {
		bad("rank %d of %d; expected ranks from 0 to below WorldSize", cfg.Rank, cfg.WorldSize)
	}
	if w := cfg.Worker; w.Init != "" || w.Store != nil || w.Rank != 0 || w.WorldSize != 0 || w.Dynamic {
		bad("Worker has an Init, Store, Rank or WorldSize, or is Dynamic; expected them beside it, and a world of a known size")
	}
	if errs == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrArguments, errors.Join(errs...))
}

// seat is what a member says when a group is split.
type seat struct {
	Color, Key int
	Nonce      string
}

// Split makes smaller groups: of all members with one color, in the order of their keys and, where
// those are equal, of their ranks. All members call it; who gives a color below 0 gets no group.
// The groups live on when this one ends.
func (g *Group) Split(c context.Context, color, key int) (*Group, error) {
	if err := there(g); err != nil {
		return nil, fmt.Errorf("collective: split: %w", err)
	}
	sub, err := g.split(c, color, key)
	if err != nil {
		return nil, fmt.Errorf("collective: split group %q: %w", g.name, err)
	}
	return sub, nil
}

func (g *Group) split(c context.Context, color, key int) (*Group, error) {
	seats, err := Agree(c, g, seat{color, key, rand.Text()})
	if err != nil {
		return nil, err
	}
	if color < 0 {
		return nil, g.Barrier(c)
	}
	var ranks []int
	parts := []string{g.voting.lineage, fmt.Sprint(color)}
	for r, s := range seats {
		parts = append(parts, s.Nonce)
		if s.Color == color {
			ranks = append(ranks, r)
		}
	}
	slices.SortStableFunc(ranks, func(a, b int) int { return cmp.Compare(seats[a].Key, seats[b].Key) })
	var roll ballot.Roll
	var hosts []string
	for _, r := range ranks {
		roll.Members, hosts = append(roll.Members, g.members[r].who()), append(hosts, g.about[r].host)
	}
	lineage := digest(parts...)
	sub, err := found(g.w, fmt.Sprintf("%s/%d", g.name, color), "collective/"+lineage, lineage, roll)
	if err != nil {
		return nil, err
	}
	if err := g.Barrier(c); err != nil { // all have founded theirs when it is over
		_ = sub.Close() // it owns nothing, and tells those that have come further
		return nil, err
	}
	sub.meet(hosts)
	return sub, nil
}

// Hosts makes the two levels of a group that spans hosts. within is this member's host: its members
// by rank. across has one member of each host, by rank, too: those that have the same rank within
// theirs. Where they hold different numbers, the groups across of
// the last members span only the hosts that have so many; compare the sizes where each has to span
// all. Members whose hosts have no name count as on one host. All members call it.
func (g *Group) Hosts(c context.Context) (within, across *Group, err error) {
	if err := there(g); err != nil {
		return nil, nil, fmt.Errorf("collective: hosts: %w", err)
	}
	if err := g.whole(c); err != nil {
		return nil, nil, fmt.Errorf("collective: hosts of group %q: %w", g.name, err)
	}
	var hosts []string
	host, place := 0, 0
	counts := map[string]int{}
	for r, a := range g.about {
		if !slices.Contains(hosts, a.host) {
			hosts = append(hosts, a.host)
		}
		if r == g.rank {
			host, place = slices.Index(hosts, a.host), counts[a.host]
		}
		counts[a.host]++
	}
	if within, err = g.Split(c, host, 0); err != nil {
		return nil, nil, err
	}
	if across, err = g.Split(c, place, 0); err != nil {
		_ = within.Close() // it owns nothing
		return nil, nil, err
	}
	return within, across, nil
}

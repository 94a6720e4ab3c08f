package process

import (
	"context"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/disttest/workload"
	random "github.com/weft-project/weft/internal/soak" // soak is a type here
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// partners are processes that are a group.
type partners struct {
	t          *testing.T
	place      workload.Place
	procs      []*proctest.Proc // by rank in the job; nil: killed
	generation uint64
	sums       int
	knew, went []time.Duration // after a kill, each survivor; and in Without
}

func partnered(t *testing.T, size int) *partners {
	t.Helper()
	server, err := store.Serve(store.ServerConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	p := &partners{t: t, procs: make([]*proctest.Proc, size), place: workload.Place{
		Store: server.Addr(), World: "0/", Size: size, Token: transport.NewToken(), Lanes: []string{transport.LaneLocal, transport.LaneQUIC},
	}}
	for r := range p.procs {
		p.procs[r] = proctest.Start(t, nil)
	}
	p.all(func(c context.Context, r int) error { return p.procs[r].Ask(c, "open", p.at(r), nil) })
	return p
}

func (p *partners) at(rank int) workload.Place {
	place := p.place
	place.Rank = rank
	return place
}

// all does something for each process at once.
func (p *partners) all(do func(c context.Context, rank int) error) {
	p.t.Helper()
	require.NoError(p.t, <-p.start(do))
}

func (p *partners) start(do func(c context.Context, rank int) error) chan error {
	c, cancel := context.WithTimeout(p.t.Context(), patience)
	errs, first := make(chan error, len(p.procs)), make(chan error, 1)
	n := 0
	for r := range p.procs {
		if p.procs[r] != nil {
			n++
			go func() { errs <- do(c, r) }()
		}
	}
	go func() {
		defer cancel()
		var err error
		for range n {
			if e := <-errs; e != nil && err == nil {
				err = e
			}
		}
		first <- err
	}()
	return first
}

// change has all make the next generation, which must have those ranks of the job.
func (p *partners) change(command string, arg []string, ranks ...int) {
	p.t.Helper()
	p.generation++
	want := names(ranks...)
	took := make([]time.Duration, len(p.procs))
	p.all(func(c context.Context, r int) error {
		var done gone
		err := p.procs[r].Ask(c, command, arg, &done)
		if err == nil && (done.Generation != p.generation || !slices.Equal(done.Members, want)) {
			err = fmt.Errorf("generation %d has %v; expected %v", done.Generation, done.Members, want)
		}
		took[r] = done.Took
		return err
	})
	if command == "without" {
		p.went = append(p.went, slices.Max(took))
	}
}

func names(ranks ...int) (all []string) {
	for _, r := range ranks {
		all = append(all, fmt.Sprintf("worker%d", r))
	}
	return all
}

// lose takes a member away by a signal while all sum. All others must get its name.
func (p *partners) lose(victim int, signal syscall.Signal) {
	p.t.Helper()
	for r, end := range p.take(victim, signal, "sum") {
		if p.procs[r] != nil {
			require.Equal(p.t, names(victim)[0], end.Lost, "rank %d: %s", r, end.Err)
		}
	}
}

// take takes a member away by a signal while all sum, or do something else again and again. It
// gives how that has ended on the others.
func (p *partners) take(victim int, signal syscall.Signal, do string) []parted {
	p.t.Helper()
	ends := make([]parted, len(p.procs))
	lost := p.procs[victim]
	p.procs[victim] = nil
	go func() { _ = lost.Ask(p.t.Context(), do, 1<<30, nil) }() // until it is killed
	summed := p.start(func(c context.Context, r int) error { return p.procs[r].Ask(c, do, 1<<30, &ends[r]) })
	p.all(func(c context.Context, r int) error { return p.procs[r].Ask(c, "after", 3, nil) })
	killed := time.Now()
	require.NoError(p.t, syscall.Kill(lost.PID(), signal))
	require.NoError(p.t, <-summed)
	for r, end := range ends {
		if p.procs[r] != nil {
			p.sums += end.Sums
			p.knew = append(p.knew, end.Known.Sub(killed))
		}
	}
	lost.Kill()
	return ends
}

// sum has all sum a few times.
func (p *partners) sum() {
	p.t.Helper()
	p.all(func(c context.Context, r int) error {
		var end parted
		err := p.procs[r].Ask(c, "sum", 3, &end)
		if err == nil && end.Sums != 3 {
			err = fmt.Errorf("rank %d: %s", r, end.Err)
		}
		return err
	})
}

// replace starts a process in a lost one's place, which the others take in.
func (p *partners) replace(victim int, ranks ...int) {
	p.t.Helper()
	proc := proctest.Start(p.t, nil)
	c, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	came := make(chan error, 1)
	go func() { came <- proc.Ask(c, "enlist", p.at(victim), nil) }()
	p.change("with", names(victim), append(ranks, victim)...)
	require.NoError(p.t, <-came)
	p.procs[victim] = proc
}

func (p *partners) end() {
	p.all(func(c context.Context, r int) error { return p.procs[r].Ask(c, "end", nil, nil) })
}

// figures are what kills have cost.
func (p *partners) figures() string {
	slices.Sort(p.knew)
	slices.Sort(p.went)
	middle, last := func(d []time.Duration) time.Duration { return d[len(d)/2] }, func(d []time.Duration) time.Duration { return d[len(d)-1] }
	return fmt.Sprintf("%d sums of 1 MiB; survivors knew after %v, at most %v; Without took %v, at most %v",
		p.sums, middle(p.knew), last(p.knew), middle(p.went), last(p.went))
}

// others are the ranks of a group, in its order, but one.
func others(ranks []int, but int) []int {
	return slices.DeleteFunc(slices.Clone(ranks), func(r int) bool { return r == but })
}

// TestKilledMembersAreNamedLeftOutAndReplaced kills one of four again and again: twice, and a
// hundred times in the soak.
func TestKilledMembersAreNamedLeftOutAndReplaced(t *testing.T) {
	t.Parallel()
	p := partnered(t, 4)
	ranks := []int{0, 1, 2, 3}
	for i := range min(random.Cases(2), 100) {
		victim := ranks[i*7%4]
		ranks = others(ranks, victim)
		p.lose(victim, syscall.SIGKILL)
		p.change("without", nil, ranks...)
		p.sum()
		p.replace(victim, ranks...)
		ranks = append(ranks, victim)
		p.sum()
	}
	t.Log(p.figures())
	p.end()
}

func TestAMemberThatIsStoppedIsLostWithinTheLease(t *testing.T) {
	t.Parallel()
	p := partnered(t, 3)
	p.lose(1, syscall.SIGSTOP)
	p.change("without", names(1), 0, 2)
	p.sum()
	t.Log(p.figures())
	p.end()
}

func TestAMemberThatIsTerminatedWithinAnOperationIsNamedAndLeftOut(t *testing.T) {
	t.Parallel()
	for _, do := range []string{"sum", "narrow", "gather", "trade"} {
		for how, heeds := range map[string]bool{" by default": false, " where it closes its group": true} {
			t.Run(do+how, func(t *testing.T) {
				t.Parallel()
				terminated(t, do, heeds).end()
			})
		}
	}
}

// terminated terminates one of three that do something, and gives the others, who go on without it.
func terminated(t *testing.T, do string, heeds bool) *partners {
	p := partnered(t, 3)
	if heeds {
		c, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		require.NoError(t, p.procs[1].Ask(c, "heed", nil, nil))
	}
	for r, end := range p.take(1, syscall.SIGTERM, do) {
		if p.procs[r] != nil {
			require.Contains(t, end.Err, names(1)[0], "rank %d", r)
		}
	}
	p.change("without", nil, 0, 2)
	p.sum()
	return p
}

func TestTwoMembersThatAreKilledAtOnceAreBothLeftOut(t *testing.T) {
	t.Parallel()
	p := partnered(t, 4)
	for _, r := range []int{1, 2} {
		p.procs[r].Kill()
		p.procs[r] = nil
	}
	p.all(func(c context.Context, r int) error {
		var done gone
		err := p.procs[r].Ask(c, "survive", nil, &done)
		if err == nil && !slices.Equal(done.Members, names(0, 3)) {
			err = fmt.Errorf("%v go on", done.Members)
		}
		return err
	})
	p.sum()
	p.end()
}

// What a member may keep: goroutines for calls to come, and mappings of what the other three have
// lent last.
const (
	keptServers  = 32
	keptMappings = 12
)

// TestGroupSoak kills, leaves out and takes in members other than the first, which must have at the
// end what it had when it was warm. WEFT_SOAK is for how long; by default it is one round.
func TestGroupSoak(t *testing.T) {
	t.Parallel()
	length := time.Duration(0)
	if v := os.Getenv("WEFT_SOAK"); v != "" {
		var err error
		length, err = time.ParseDuration(v)
		require.NoError(t, err)
	}
	p := partnered(t, 4)
	ranks, rounds := []int{0, 1, 2, 3}, 0
	round := func() {
		victim := 1 + rounds%3
		rounds++
		ranks = others(ranks, victim)
		p.lose(victim, syscall.SIGKILL)
		p.change("without", nil, ranks...)
		p.replace(victim, ranks...)
		ranks = append(ranks, victim)
		p.sum()
	}
	warm := 1
	if length > 0 {
		warm = 3 // each other process is new then
	}
	for range warm { // fills pools
		round()
	}
	look := func() (r resources) {
		for range 3 { // what one has borrowed goes back when its collector finds it
			p.all(func(c context.Context, rank int) error {
				var here resources
				err := p.procs[rank].Ask(c, "look", nil, &here)
				if rank == 0 {
					r = here
				}
				return err
			})
		}
		return r
	}
	before := look()
	start := time.Now()
	for first := true; first || time.Since(start) < length; first = false {
		round()
	}
	flat := func(r resources) bool {
		r.Foreign -= keptMappings
		return r.leavesNothing(before) && r.Goroutines <= before.Goroutines+keptServers && r.RSS <= before.RSS+keptMemory
	}
	after := look()
	for end := time.Now().Add(15 * time.Second); !flat(after) && time.Now().Before(end); {
		after = look()
	}
	require.True(t, flat(after), "after %d rounds; before: %v; now: %v", rounds, before, after)
	t.Logf("soak of groups: %d rounds; before: %v; after: %v; %s", rounds, before, after, p.figures())
	p.end()
}

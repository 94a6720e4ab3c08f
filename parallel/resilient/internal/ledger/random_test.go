package ledger

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

// sim is a team without anything below it: members take turns in a random order, operations are
// made when all have come to them, and members are lost at any moment.
type sim struct {
	t              *testing.T
	r              *rand.Rand
	buckets, batch int
	steps          uint64
	kills, joins   int // that are still to come
	all            []*player
	gens           int
	looks          map[uint64]bool // steps before which all tell their statuses without a loss
	saw            map[string]int
}

// generation is members between two changes.
type generation struct {
	no      int
	members []*player
	ops     []map[int]any // by number, then by rank
	next    *generation
	waiting map[*player]bool // for the next one
}

func (g *generation) broken() bool {
	return slices.ContainsFunc(g.members, (*player).gone)
}

// sum is a bucket's sum: which one it is, and how often it has each row.
type sum struct {
	id   string
	rows []int
}

// player is a member, and what the shell would hold for it.
type player struct {
	*sim
	name     int
	m        *Member
	dead     bool
	finished bool
	late     bool // it had not got the state when all was over
	next     func() (struct{}, bool)
	yield    func(struct{}) bool

	g     *generation
	at    int // operation of the generation
	plan  *Plan
	rows  []int // contributions: how often each row is in them
	sums  map[int]sum
	last  map[int]sum
	state []string            // what every step was made of, from the first one
	keeps map[uint64][]string // for others
	queue []string            // of one that is catching: what steps from Base on were made of
}

func (x *player) gone() bool { return x.dead || x.finished }

var errLost = errors.New("lost")

func (x *player) rest() {
	if !x.yield(struct{}{}) {
		panic("stopped")
	}
}

// op brings something to the next operation, and waits for what all bring; with a root, for what
// that brings. It may fail where a member is lost, whether or not all had come.
func (x *player) op(brings any, root int) (map[int]any, error) {
	g, rank := x.g, slices.Index(x.g.members, x)
	for len(g.ops) <= x.at {
		g.ops = append(g.ops, map[int]any{})
	}
	in := g.ops[x.at]
	in[rank] = brings
	x.at++
	for {
		x.rest()
		there := len(in) == len(g.members)
		if _, has := in[root]; has {
			there = true
		}
		if g.broken() && x.r.IntN(3) == 0 || g.next != nil {
			return nil, errLost
		}
		if there {
			return in, nil
		}
	}
}

// change waits for the next generation: of those that are left, perhaps with others.
func (x *player) change() {
	g := x.g
	g.waiting[x] = true
	for g.next == nil {
		ready := !slices.ContainsFunc(g.members, func(o *player) bool { return !o.gone() && !g.waiting[o] })
		if ready && x.r.IntN(2) == 0 {
			g.next = x.newGeneration(slices.DeleteFunc(slices.Clone(g.members), (*player).gone))
		} else {
			x.rest()
		}
	}
	x.g, x.at = g.next, 0
}

func (s *sim) newGeneration(members []*player) *generation {
	for s.joins > 0 && s.gens > 0 && s.r.IntN(2) == 0 {
		s.joins--
		members = append(members, s.newPlayer(false))
	}
	g := &generation{no: s.gens, members: members, waiting: map[*player]bool{}}
	s.gens++
	for _, x := range members {
		if x.g == nil {
			x.g = g
		}
	}
	return g
}

func (s *sim) newPlayer(ready bool) *player {
	x := &player{sim: s, name: len(s.all), m: New(s.buckets, ready, 0), rows: make([]int, s.batch), sums: map[int]sum{}, keeps: map[uint64][]string{}}
	s.all = append(s.all, x)
	x.next, _ = iter.Pull(func(yield func(struct{}) bool) {
		x.yield = yield
		defer func() {
			if e := recover(); e != nil && e != "stopped" {
				panic(e)
			}
		}()
		x.live()
	})
	return x
}

func (x *player) live() {
	digest := true // when it begins
	for {
		if x.plan == nil {
			if err := x.sync(digest); errors.Is(err, errLost) {
				digest = false
				x.change()
				continue
			} else if err != nil {
				x.saw[err.Error()]++
				return
			}
		}
		digest = false
		if x.m.Step() >= x.steps {
			if _, err := x.op("end", -1); err == nil {
				x.finished = true
				x.late = x.m.Role() != Ready && !x.m.Status().Loaded
				return
			}
			x.plan = nil
			x.change()
			continue
		}
		err := x.attempt()
		if err != nil {
			x.plan = nil
			x.change()
			continue
		}
		if x.looks[x.m.Step()] { // the same on all
			x.plan, digest = nil, true
			if x.m.Role() == Catching && x.m.Status().Loaded {
				x.m.Claim()
			}
			if x.joins > 0 {
				x.g.waiting[x] = true
				x.change()
			}
		}
	}
}

// sync tells the statuses, and begins with the plan.
func (x *player) sync(digest bool) error {
	x.m.Keep(slices.Sorted(maps.Keys(x.keeps))...)
	if x.m.Role() == Ready {
		x.m.Rows(x.batch)
	}
	if digest && (x.m.Role() == Ready || x.m.Status().Claims) {
		x.m.Known(fmt.Sprint(x.state))
	}
	all, err := x.op(x.m.Status(), -1)
	if err != nil {
		return err
	}
	statuses := make([]Status, len(x.g.members))
	for rank, s := range all {
		statuses[rank] = s.(Status)
	}
	p, err := Decide(statuses, x.buckets)
	if err != nil {
		return err
	}
	require.False(x.t, len(p.Before) > 0 && len(p.Spread) > 0)
	rank, era := slices.Index(x.g.members, x), p.Era
	if era == "" {
		era = fmt.Sprint("era ", x.g.no)
	}
	if x.m.Take(p, rank, era) {
		x.rows, x.sums = make([]int, x.batch), map[int]sum{}
	}
	if p.Base[rank] {
		x.state, x.queue, x.last = nil, nil, nil
		clear(x.keeps)
	}
	x.saw["plans"]++
	for _, tr := range p.Before {
		x.saw["sums of the step before"]++
		var brings any
		if rank == tr.Root {
			brings = x.last[tr.Bucket]
		}
		in, err := x.op(brings, tr.Root)
		if err != nil {
			return err
		}
		if x.m.Step() < p.Step {
			x.got(tr.Bucket, in[tr.Root].(sum))
		}
	}
	if x.m.Step() < p.Step {
		x.apply()
		x.m.Rows(x.batch)
	}
	require.Equal(x.t, p.Step, x.m.Step())
	if slices.Contains(p.Base, true) && p.Roles[rank] == Ready {
		x.keeps[p.Step] = slices.Clone(x.state)
	}
	x.plan = &p
	return nil
}

func (x *player) attempt() error {
	p, rank := x.plan, slices.Index(x.g.members, x)
	if spans := p.Compute[rank]; len(spans) > 0 {
		require.Equal(x.t, Ready, x.m.Role())
		x.rest()
		for _, s := range spans {
			for i := s.Lo; i < s.Hi; i++ {
				x.rows[i]++
			}
		}
		x.m.Computed(spans)
		x.rest()
	}
	for _, tr := range p.Spread {
		x.saw["sums that some had"]++
		var brings any
		if rank == tr.Root {
			brings = x.sums[tr.Bucket]
		}
		in, err := x.op(brings, tr.Root)
		if err != nil {
			return err
		}
		x.got(tr.Bucket, in[tr.Root].(sum))
	}
	for _, b := range p.Reduce {
		in, err := x.op(slices.Clone(x.rows), -1)
		if err != nil {
			return err
		}
		total := sum{id: fmt.Sprintf("%d %d %d", p.Step, b, x.g.no), rows: make([]int, x.batch)}
		for _, rows := range in {
			for i, n := range rows.([]int) {
				total.rows[i] += n
			}
		}
		x.got(b, total)
		if x.m.Role() == Catching && x.r.IntN(4) == 0 {
			x.load()
		}
	}
	require.True(x.t, x.m.Whole())
	x.apply()
	next := p.Next(x.buckets, x.batch)
	x.plan = &next
	return nil
}

// load gets the state that this player has asked for, from anybody who keeps it.
func (x *player) load() {
	s := x.m.Status()
	for _, o := range x.g.members {
		if state, kept := o.keeps[s.Base]; kept && !o.dead && !s.Loaded {
			x.state = append(slices.Clone(state), x.queue...)
			x.m.Loaded()
			return
		}
	}
}

func (x *player) got(bucket int, s sum) {
	for row, n := range s.rows {
		require.Equal(x.t, 1, n, "row %d of bucket %d of step %d", row, bucket, x.m.Step())
	}
	x.m.Summed(bucket)
	x.sums[bucket] = s
}

func (x *player) apply() {
	made := ""
	for b := range x.buckets {
		made += x.sums[b].id + "; "
	}
	if x.m.Role() == Catching {
		x.queue = append(x.queue, made)
	}
	if x.m.Role() == Ready || x.m.Status().Loaded {
		x.state = append(x.state, made)
	}
	x.last, x.sums, x.rows = x.sums, map[int]sum{}, make([]int, x.batch)
	x.m.Applied()
	if x.m.Role() == Ready {
		x.m.Rows(x.batch)
	}
}

func (s *sim) run() {
	for range 100000 {
		var alive []*player
		ready := 0
		for _, x := range s.all {
			if !x.dead && !x.finished && x.g != nil {
				alive = append(alive, x)
				if x.m.Role() == Ready {
					ready++
				}
			}
		}
		if len(alive) == 0 {
			return
		}
		x := alive[s.r.IntN(len(alive))]
		if s.kills > 0 && len(alive) > 1 && s.r.IntN(60) == 0 {
			s.kills--
			x.dead = true
			continue
		}
		if _, more := x.next(); !more && !x.finished {
			x.dead = true // it gave up
		}
	}
	require.Fail(s.t, "the members do not come to an end")
}

// TestEveryStepIsMadeOfEachRowOnceWhereverMembersAreLost follows random schedules. Every sum that
// any member has must have each row once (see got), and all must have made all steps of the same
// sums.
func TestEveryStepIsMadeOfEachRowOnceWhereverMembersAreLost(t *testing.T) {
	saw := map[string]int{}
	for seed := range uint64(soak.Cases(5000)) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := &sim{
			t: t, r: r, buckets: 1 + r.IntN(4), batch: r.IntN(9), steps: 1 + uint64(r.IntN(6)), kills: r.IntN(5), joins: r.IntN(3),
			looks: map[uint64]bool{}, saw: saw,
		}
		for step := range s.steps {
			s.looks[step] = r.IntN(3) == 0
		}
		var first []*player
		for range 1 + r.IntN(5) {
			first = append(first, s.newPlayer(true))
		}
		s.newGeneration(first)
		s.run()
		var want []string
		for _, x := range s.all {
			if !x.finished || x.late {
				continue
			}
			require.Len(t, x.state, int(s.steps), "seed %d, player %d", seed, x.name)
			if want == nil {
				want = x.state
			}
			require.Equal(t, want, x.state, "seed %d, player %d", seed, x.name)
			saw["ends"]++
			if x.name >= len(first) {
				saw["newcomers that came to the end"]++
			}
		}
		for _, x := range s.all { // who was lost had made the same steps; the last one may be lost with it
			for i := range min(len(want), len(x.state)-1) {
				require.Equal(t, want[i], x.state[i], "seed %d, player %d", seed, x.name)
			}
		}
	}
	t.Log(saw)
	for _, what := range []string{"ends", "sums of the step before", "sums that some had", "newcomers that came to the end"} {
		require.Greater(t, saw[what], 50, what)
	}
}

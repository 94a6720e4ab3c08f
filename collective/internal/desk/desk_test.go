package desk

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective/internal/fold"
	"github.com/weft-project/weft/collective/internal/plan"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
)

// sim is a group whose messages arrive in any order.
type sim struct {
	t       *testing.T
	r       *rand.Rand
	members []*member
	post    []message
	most    int // messages that ever waited at one desk
}

// member is one that goes through its operations, each in a goroutine of its own, as it were.
type member struct {
	rank  int
	desk  *Desk[[]plan.Slot]
	gone  bool
	todo  []*op
	ended map[Key]error
}

// op is an operation that a member is in.
type op struct {
	key   Key
	call  Call
	plan  plan.Plan
	at    int
	sent  bool
	begun bool
	has   map[plan.Slot]bool
}

// message goes from one member to another: slots of a step, a failure, or a loss.
type message struct {
	from, to int
	key      Key
	call     Call
	step     int
	slots    []plan.Slot
	failure  error
	broken   error
}

func (s *sim) send(m message) {
	if !s.members[m.from].gone {
		s.post = append(s.post, m)
	}
}

func (s *sim) tell(from *member, m message) {
	for _, to := range s.members {
		if to != from {
			m.from, m.to = from.rank, to.rank
			s.send(m)
		}
	}
}

// fail ends an operation at a member, as the shell does.
func (s *sim) fail(m *member, k Key, err error) {
	var mismatch *MismatchError
	if m.desk.Fail(k, err) || errors.As(err, &mismatch) {
		s.tell(m, message{key: k, failure: err})
	}
}

// deliver hands a message over.
func (s *sim) deliver(i int) {
	x := s.post[i]
	s.post[i] = s.post[len(s.post)-1]
	s.post = s.post[:len(s.post)-1]
	m := s.members[x.to]
	switch {
	case m.gone:
	case x.broken != nil:
		m.desk.Break(x.broken)
		m.desk.Drain()
	case x.failure != nil:
		m.desk.Fail(x.key, x.failure)
	default:
		if _, failure := m.desk.Arrive(m.rank, x.key, x.call, Mail{x.from, x.step}, x.slots, len(x.slots)); failure != nil {
			s.fail(m, x.key, failure)
		}
	}
	waiting := 0
	for _, o := range m.desk.ops {
		waiting += len(o.inbox)
	}
	s.most = max(s.most, waiting)
}

// advance lets a member do one thing for an operation; false where it has to wait.
func (s *sim) advance(m *member, o *op) bool {
	if !o.begun {
		o.begun = true
		if err := m.desk.Begin(m.rank, o.key, o.call, o.plan.Steps...); err != nil {
			s.end(m, o, err)
		}
		return true
	}
	if o.at == len(o.plan.Steps) {
		s.end(m, o, nil)
		return true
	}
	step := o.plan.Steps[o.at]
	if !o.sent {
		o.sent = true
		for _, out := range step.Send {
			s.send(message{from: m.rank, to: out.Peer, key: o.key, call: o.call, step: o.at, slots: out.Slots})
		}
		return true
	}
	for _, in := range step.Recv {
		if o.has[plan.Slot{Of: -2 - in.Peer, Piece: o.at}] {
			continue
		}
		slots, ok, err := m.desk.Take(o.key, Mail{in.Peer, o.at})
		if err != nil {
			s.end(m, o, err)
			return true
		}
		if !ok {
			return false
		}
		require.Equal(s.t, in.Slots, slots)
		o.has[plan.Slot{Of: -2 - in.Peer, Piece: o.at}] = true
		return true
	}
	o.at, o.sent = o.at+1, false
	return true
}

func (s *sim) end(m *member, o *op, err error) {
	if err != nil {
		s.fail(m, o.key, err)
	}
	if _, _, failed := m.desk.Take(o.key, Mail{From: -1}); failed != nil && err != nil {
		err = failed
	}
	m.desk.End(o.key)
	_, twice := m.ended[o.key]
	require.False(s.t, twice)
	m.ended[o.key] = err
	for i := range m.todo {
		if m.todo[i] == o {
			m.todo = append(m.todo[:i], m.todo[i+1:]...)
			return
		}
	}
}

// lose takes a member away: what it has sent may be lost, and the others learn of it at any time.
func (s *sim) lose(rank int) {
	s.members[rank].gone = true
	var kept []message
	for _, x := range s.post {
		if x.from != rank || s.r.IntN(2) == 0 {
			kept = append(kept, x)
		}
	}
	s.post = kept
	for _, m := range s.members {
		if !m.gone {
			s.post = append(s.post, message{from: rank, to: m.rank, broken: errLost})
		}
	}
}

var errLost, errCancelled = errors.New("lost"), errors.New("cancelled")

func newSim(t *testing.T, seed uint64, size, operations int) *sim {
	s := &sim{t: t, r: rand.New(rand.NewPCG(seed, 21))}
	for r := range size {
		s.members = append(s.members, &member{rank: r, desk: New[[]plan.Slot](), ended: map[Key]error{}})
	}
	next := map[string]uint64{}
	for range operations {
		scope := []string{"", "a", "b"}[s.r.IntN(3)]
		key := Key{Scope: scope, N: next[scope]}
		next[scope]++
		c := s.draw(size)
		for r, m := range s.members {
			m.todo = append(m.todo, &op{key: key, call: c, plan: plan.New(c.Kind, c.Algorithm, size, r, c.Root), has: map[plan.Slot]bool{}})
		}
	}
	return s
}

func (s *sim) draw(size int) Call {
	for {
		c := Call{Kind: plan.Kind(1 + s.r.IntN(int(plan.Barrier))), Algorithm: plan.Algorithm(1 + s.r.IntN(int(plan.Tree))), Root: s.r.IntN(size),
			Op: fold.Op{Fn: fold.Sum}, Dtype: device.Float32, Count: 1 + s.r.IntN(3), Line: "a.go:1"}
		if !c.Kind.Rooted() {
			c.Root = 0
		}
		if c.Algorithm.Does(c.Kind) {
			return c
		}
	}
}

// settle runs until nothing can happen any more. disturb is asked at each moment.
func (s *sim) settle(disturb func(moment int)) {
	for moment := 0; ; moment++ {
		disturb(moment)
		var able []func() bool
		for i := range s.post {
			able = append(able, func() bool { s.deliver(i); return true })
		}
		for _, m := range s.members {
			if m.gone {
				continue
			}
			for _, o := range m.todo {
				able = append(able, func() bool { return s.advance(m, o) })
			}
		}
		moved := false
		for _, k := range s.r.Perm(len(able)) {
			if able[k]() {
				moved = true
				break
			}
		}
		if !moved {
			return
		}
	}
}

// over checks that every member that is left has one outcome of every operation, and holds nothing.
func (s *sim) over(operations int) {
	for _, m := range s.members {
		if m.gone {
			continue
		}
		require.Empty(s.t, m.todo, "rank %d is stuck", m.rank)
		require.Len(s.t, m.ended, operations)
		require.Empty(s.t, m.desk.ops, "rank %d", m.rank)
		require.Zero(s.t, m.desk.ahead)
		require.Empty(s.t, m.desk.held)
		for _, scope := range m.desk.scopes {
			require.Empty(s.t, scope.more)
			require.NotNil(s.t, scope.idle)
		}
	}
}

func TestRandomSchedulesEndEverywhere(t *testing.T) {
	for seed := range uint64(soak.Cases(200)) {
		s := newSim(t, seed, 1+int(seed%6), 4)
		s.settle(func(int) {})
		s.over(4)
		for _, m := range s.members {
			for k, err := range m.ended {
				require.NoError(t, err, "seed %d, rank %d, %v", seed, m.rank, k)
			}
		}
		require.LessOrEqual(t, s.most, 4*8*len(s.members), "what waits is bounded by the operations under way")
	}
}

func TestALossAtAnyMomentEndsEverythingOnAllSurvivors(t *testing.T) {
	for seed := range uint64(soak.Cases(200)) {
		size := 2 + int(seed%5)
		s := newSim(t, seed, size, 3)
		at := s.r.IntN(60)
		s.settle(func(moment int) {
			if moment == at {
				s.lose(s.r.IntN(size))
			}
		})
		if s.members[0].gone || size > 1 {
			s.over(3)
		}
		for _, m := range s.members {
			for k, err := range m.ended {
				if err != nil && !m.gone {
					require.ErrorIs(t, err, errLost, "seed %d, rank %d, %v", seed, m.rank, k)
				}
			}
		}
	}
}

func TestWhoGivesUpAnOperationEndsItOnAllAndNothingElse(t *testing.T) {
	for seed := range uint64(soak.Cases(200)) {
		size := 2 + int(seed%5)
		s := newSim(t, seed, size, 3)
		at := s.r.IntN(60)
		var given *Key
		s.settle(func(moment int) {
			m := s.members[s.r.IntN(size)]
			if moment == at && len(m.todo) > 0 {
				o := m.todo[0]
				if o.begun {
					given = &o.key
					s.end(m, o, errCancelled)
				}
			}
		})
		s.over(3)
		for _, m := range s.members {
			for k, err := range m.ended {
				if given != nil && k == *given {
					continue // who was done before it heard has its result
				}
				require.NoError(t, err, "seed %d, rank %d, %v", seed, m.rank, k)
			}
		}
	}
}

// Everything that a call may differ in, at any member and in any order of messages, fails the
// operation on all of them with both calls, and nothing else.
func TestAMismatchFailsTheOperationOnAllMembersUnderEverySchedule(t *testing.T) {
	for seed := range uint64(soak.Cases(600)) {
		size := 2 + int(seed%5)
		s := newSim(t, seed, size, 3)
		which := s.r.IntN(3)
		one := s.r.IntN(size)
		o := s.members[one].todo[which]
		for was := o.call; was.fits(o.call); {
			o.call = s.draw(size)
		}
		o.plan = plan.New(o.call.Kind, o.call.Algorithm, size, one, o.call.Root)
		s.settle(func(int) {})
		s.over(3)
		for _, m := range s.members {
			for k, err := range m.ended {
				if k != o.key {
					require.NoError(t, err, "seed %d, rank %d, %v", seed, m.rank, k)
					continue
				}
				var e *MismatchError
				require.ErrorAs(t, err, &e, "seed %d, rank %d of %d: rank %d calls %v, the others %v", seed, m.rank, size, one, o.call, s.members[(one+1)%size].ended)
			}
		}
	}
}

func TestAMemberThatIsTooFarAheadIsRefused(t *testing.T) {
	d := New[int]()
	c := Call{Kind: plan.Barrier, Algorithm: plan.Direct}
	for n := range uint64(Ahead) {
		kept, err := d.Arrive(0, Key{N: n}, c, Mail{From: 1}, 1, 0)
		require.True(t, kept)
		require.NoError(t, err)
	}
	kept, err := d.Arrive(0, Key{N: Ahead}, c, Mail{From: 1}, 1, 0)
	require.False(t, kept)
	require.ErrorIs(t, err, ErrAhead)
	require.NoError(t, d.Begin(0, Key{}, c))
	require.ErrorIs(t, d.Begin(0, Key{}, c), ErrTwice)
	kept, err = d.Arrive(0, Key{N: Ahead}, c, Mail{From: 1}, 1, 0)
	require.True(t, kept)
	require.NoError(t, err)
	require.Equal(t, []int{1}, d.End(Key{}))
	require.ErrorIs(t, d.Begin(0, Key{}, c), ErrTwice)
	require.Len(t, d.Drain(), Ahead)
	require.Empty(t, d.ops)
}

// What a member can make another one hold before that begins is bounded for each alone.
func TestWhatAMemberSendsAheadIsBoundedInBytes(t *testing.T) {
	d := New[int]()
	c := Call{Kind: plan.Barrier, Algorithm: plan.Direct}
	const each = 1 << 20
	n, held := uint64(0), 0
	for ; held+each+overhead <= AheadBytes; n, held = n+1, held+each+overhead {
		kept, err := d.Arrive(0, Key{N: n / 4}, c, Mail{From: 1, Step: int(n % 4)}, 1, each)
		require.True(t, kept)
		require.NoError(t, err)
	}
	require.Equal(t, held, d.held[1])
	kept, err := d.Arrive(0, Key{Scope: "x"}, c, Mail{From: 1}, 1, each)
	require.False(t, kept)
	require.ErrorIs(t, err, ErrAhead)
	require.ErrorIs(t, d.Begin(0, Key{Scope: "x"}, c), ErrAhead, "it has failed on all")
	kept, _ = d.Arrive(0, Key{Scope: "y"}, c, Mail{From: 2}, 1, each)
	require.True(t, kept, "another member has its own")
	require.NoError(t, d.Begin(0, Key{}, c))
	require.Equal(t, held-4*(each+overhead), d.held[1], "what this member has begun is its own")
	kept, err = d.Arrive(0, Key{}, c, Mail{From: 1, Step: 9}, 1, AheadBytes)
	require.True(t, kept)
	require.NoError(t, err)
	for _, k := range []Key{{}, {Scope: "x"}} {
		d.End(k)
	}
	d.Drain()
	require.Empty(t, d.held)
}

func TestOfAnOperationThatWasBegunNothingIsKeptButWhatAStepWaitsFor(t *testing.T) {
	d := New[int]()
	c := Call{Kind: plan.Barrier, Algorithm: plan.Spread}
	p := plan.New(c.Kind, c.Algorithm, 4, 0, 0)
	require.NoError(t, d.Begin(0, Key{}, c, p.Steps...))
	for from := 1; from < 4; from++ {
		for step := range 5 {
			kept, err := d.Arrive(0, Key{}, c, Mail{From: from, Step: step}, 1, 0)
			require.NoError(t, err)
			require.Equal(t, step == 0 && from == 1 || step == 1 && from == 2, kept, "rank %d, step %d", from, step)
		}
	}
}

func TestScopesWithoutEndAreForgottenAndOnesThatAreUsedAreNot(t *testing.T) {
	d := New[int]()
	c := Call{Kind: plan.Barrier, Algorithm: plan.Direct}
	run := func(scope string, n uint64) {
		k := d.Next(scope)
		if err := d.Begin(0, k, c); err != nil || k != (Key{Scope: scope, N: n}) {
			require.NoError(t, err)
			require.Equal(t, Key{Scope: scope, N: n}, k)
		}
		d.End(k)
	}
	open := Key{Scope: "open"}
	require.NoError(t, d.Begin(0, open, c))
	for i := range 4 * Scopes {
		run(fmt.Sprint("scope ", i), 0)
		if i%(Scopes/2) == 0 {
			run("used", uint64(i/(Scopes/2)))
		}
	}
	require.LessOrEqual(t, len(d.scopes), Scopes+1)
	require.Equal(t, Scopes, d.idle.Len())
	last := fmt.Sprint("scope ", 4*Scopes-1)
	run("scope 0", 0) // forgotten
	run(last, 1)
	require.ErrorIs(t, d.Begin(0, Key{Scope: last, N: 1}, c), ErrTwice)
	d.End(open)
	require.Equal(t, uint64(1), d.Next("open").N)
}

func TestWhoAsksIsToldWhenAMemberBegins(t *testing.T) {
	d := New[int]()
	c := Call{Kind: plan.Barrier, Algorithm: plan.Direct}
	for range 2 {
		for _, from := range []int{3, 1} {
			_, ok := d.Ask(Key{}, from)
			require.False(t, ok)
		}
	}
	require.NoError(t, d.Begin(0, Key{}, c))
	require.Equal(t, []int{3, 1}, d.Asked(Key{}))
	got, ok := d.Ask(Key{}, 2)
	require.True(t, ok)
	require.Equal(t, c, got)
	d.End(Key{})
	_, ok = d.Ask(Key{}, 2)
	require.False(t, ok)
	require.Nil(t, d.Asked(Key{}))
	require.Empty(t, d.ops)
}

func TestAMismatchSaysBothCalls(t *testing.T) {
	a := Call{Kind: plan.AllReduce, Algorithm: plan.Direct, Op: fold.Op{Fn: fold.Sum}, Dtype: device.Float32, Count: 10, Line: "a.go:1"}
	b := a
	b.Op, b.Line = fold.Op{Fn: fold.Scaled, Factor: 0.5}, "b.go:2"
	err := error(&MismatchError{Key: Key{Scope: "x", N: 7}, Ranks: [2]int{0, 3}, Calls: [2]Call{a, b}})
	require.ErrorIs(t, err, ErrMismatch)
	require.EqualError(t, err, "members of the group called different operations: operation x#7: "+
		"rank 0 calls AllReduce Sum of 10 float32 by direct at a.go:1, rank 3 calls AllReduce Scaled(0.5) of 10 float32 by direct at b.go:2")
	require.Equal(t, "Gather of float32 with root 2 by tree at x", fmt.Sprint(Call{Kind: plan.Gather, Algorithm: plan.Tree, Dtype: device.Float32, Count: -1, Root: 2, Line: "x"}))
}

func TestPartsFailWithTheirOperationAndAreOverWithIt(t *testing.T) {
	d := New[int]()
	c := Call{Kind: plan.Barrier, Algorithm: plan.Direct}
	whole, part, next := Key{N: 0}, Key{N: 0, Part: 1}, Key{N: 0, Part: 2}
	require.NoError(t, d.Begin(0, whole, c))
	require.NoError(t, d.Begin(0, part, c))
	require.Empty(t, d.End(part))
	require.ErrorIs(t, d.Begin(0, part, c), ErrTwice)
	kept, err := d.Arrive(0, next, c, Mail{From: 1}, 7, 70) // early
	require.True(t, kept)
	require.NoError(t, err)
	require.True(t, d.Fail(whole, ErrAhead))
	require.ErrorIs(t, d.Begin(0, next, c), ErrAhead)
	_, _, err = d.Take(next, Mail{From: 1})
	require.ErrorIs(t, err, ErrAhead)
	require.Equal(t, []int{7}, d.End(next))
	early := Key{N: 0, Part: 3}
	kept, err = d.Arrive(0, early, c, Mail{From: 1}, 8, 80)
	require.True(t, kept)
	require.NoError(t, err)
	require.Equal(t, []int{8}, d.End(whole), "what came of parts that were never begun")
	for part := range 5 {
		kept, err = d.Arrive(0, Key{N: 0, Part: part}, c, Mail{From: 1}, 9, 90)
		require.False(t, kept)
		require.NoError(t, err)
		require.False(t, d.Fail(Key{N: 0, Part: part}, ErrAhead))
	}
	require.Empty(t, d.ops)
	require.Empty(t, d.parts)
	require.Zero(t, d.ahead)
	require.Zero(t, d.Held())
}

func TestAKeyOfAGroupsOwnScopeIsWrittenForReadersAndToldApartByItsName(t *testing.T) {
	own, users := Key{Scope: Own + "back s", N: 3, Part: 1}, Key{Scope: "back s", N: 3, Part: 1}
	require.Equal(t, "back s#3.1", own.String())
	require.Equal(t, own.String(), users.String())
	require.Equal(t, "back s#3.1", users.Name())
	require.NotEqual(t, own.Name(), users.Name())
}

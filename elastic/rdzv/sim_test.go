//go:build !race

package rdzv

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sim is a job of many nodes at one store, in a time of its own: peers, whose operations and news
// each take their time.
type sim struct {
	keys
	t     *testing.T
	r     *rand.Rand
	cfg   Config
	now   time.Time
	seats []*simSeat
	byID  map[string]*simSeat
	queue agenda
	order int
	sums  [kinds]cost
	lead  *simSeat // who led last
	over  bool     // it may end well

	rounds map[int]*simRound
}

// simRound is what its nodes were told of a round.
type simRound struct {
	nodes, world, source int
	ranks                map[int]string
	first, last          time.Time // when somebody was told, and all were
}

// told takes what a node was told, which must agree with what others were.
func (r *simRound) told(id string, p Placement) error {
	other := r.ranks[p.Rank]
	if r.nodes != p.Nodes || r.world != p.World || r.source != p.Source || other != "" && other != id {
		return fmt.Errorf("two nodes disagree: %s was told %+v, others of %d nodes, %d workers, source %d, and rank %d is %s's", id, p, r.nodes, r.world, r.source, p.Rank, other)
	}
	r.ranks[p.Rank] = id
	return nil
}

// cost is what goes to and from the store.
type cost struct{ messages, bytes int }

// kind is what a message is about.
type kind int

const (
	asking  kind = iota // what nodes say to the leader
	telling             // what it tells each
	showing             // bulletins
	keeping             // the lease and the state
	kinds
)

// simSeat is a peer and what has come for it.
type simSeat struct {
	*peer
	todo      []op
	working   bool // the first of todo is under way
	answers   [][]byte
	bulletins [][]byte
	alarm     time.Time
	dead      bool
	place     Placement
}

// due is something at a time, in the order in which they were planned where they are at once.
type due struct {
	at    time.Time
	order int
	do    func()
}

type agenda []due

func (h agenda) Len() int      { return len(h) }
func (h agenda) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *agenda) Push(x any)   { *h = append(*h, x.(due)) }
func (h agenda) Less(i, j int) bool {
	return h[i].at.Before(h[j].at) || h[i].at.Equal(h[j].at) && h[i].order < h[j].order
}

func (h *agenda) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = due{}
	*h = (*h)[:len(*h)-1]
	return last
}

func newSim(t *testing.T, seed uint64, cfg Config) *sim {
	cfg, err := cfg.Populate()
	require.NoError(t, err)
	return &sim{
		keys: keys{values: map[string]string{}, queues: map[string][]string{}}, t: t, r: rand.New(rand.NewPCG(seed, 3)), cfg: cfg, now: epochOfTime,
		byID: map[string]*simSeat{}, rounds: map[int]*simRound{},
	}
}

func (s *sim) plan(after time.Duration, do func()) {
	s.order++
	heap.Push(&s.queue, due{s.now.Add(after), s.order, do})
}

// within is some time up to d.
func (s *sim) within(d time.Duration) time.Duration { return time.Duration(s.r.Int64N(int64(d))) }

// trip is how long a message takes with its answer.
func (s *sim) trip() time.Duration { return 50*time.Microsecond + s.within(200*time.Microsecond) }

func (s *sim) pass(d time.Duration) {
	end := s.now.Add(d)
	for len(s.queue) > 0 && !s.queue[0].at.After(end) {
		h := heap.Pop(&s.queue).(due)
		s.now = h.at
		h.do()
	}
	s.now = end
}

// join has so many nodes come at some time within d.
func (s *sim) join(n int, d time.Duration) {
	for range n {
		i := len(s.seats)
		seat := &simSeat{}
		s.seats = append(s.seats, seat)
		s.plan(s.within(d), func() {
			seat.peer = newPeer(Node{ID: fmt.Sprintf("host-%05d-%d", i, i%7), Addr: fmt.Sprintf("10.0.%d.%d", i/256, i%256), Slots: 8}, s.cfg, s.now)
			s.byID[seat.node.ID] = seat
			seat.todo = seat.start()
			s.turn(seat)
		})
	}
}

// die has so many of those alive die at some time within d.
func (s *sim) die(n int, d time.Duration) {
	for range n {
		s.plan(s.within(d), func() {
			for {
				if seat := s.seats[s.r.IntN(len(s.seats))]; !seat.dead && seat.peer != nil {
					seat.dead = true
					return
				}
			}
		})
	}
}

func (s *sim) count(k kind, messages, bytes int) {
	s.sums[k].messages += messages
	s.sums[k].bytes += bytes
}

func kindOf(key string) kind {
	switch {
	case key == keyInbox:
		return asking
	case key == keySummary:
		return showing
	case len(key) > 3 && key[:3] == "to/":
		return telling
	}
	return keeping
}

// turn lets a seat do what it has to do next.
func (s *sim) turn(seat *simSeat) {
	if seat.dead || seat.working {
		return
	}
	s.hear(seat)
	for len(seat.todo) == 0 {
		if !s.take(seat) {
			s.wind(seat)
			return
		}
		s.hear(seat)
	}
	seat.working = true
	s.plan(s.trip(), func() {
		if !seat.dead {
			s.perform(seat)
			seat.working = false
			s.turn(seat)
		}
	})
}

// perform does an operation.
func (s *sim) perform(seat *simSeat) {
	o := seat.todo[0]
	seat.todo = seat.todo[1:]
	value := s.do(o)
	k := kindOf(o.key)
	s.count(k, 1, len(o.key)+len(o.old)+len(o.new)+len(value))
	switch {
	case o.kind == opRead || o.kind == opSwap:
		more, err := seat.result(o, value, s.now)
		require.NoError(s.t, err)
		seat.todo = append(seat.todo, more...)
	case k == showing:
		for _, to := range s.seats {
			if to.peer != nil && !to.dead {
				s.deliver(to, &to.bulletins, o)
			}
		}
	case k == asking && s.lead != nil:
		s.plan(s.trip(), func() { s.turn(s.lead) })
	case k == telling:
		delete(s.queues, o.key)
		if to := s.byID[o.key[3:]]; to != nil && !to.dead {
			s.deliver(to, &to.answers, o)
		}
	}
}

func (s *sim) deliver(to *simSeat, into *[][]byte, o op) {
	s.plan(s.trip(), func() {
		if !to.dead {
			s.count(kindOf(o.key), 1, len(o.key)+len(o.new))
			*into = append(*into, o.new)
			s.turn(to)
		}
	})
}

// take takes one of the things that have come for a seat, if there are any.
func (s *sim) take(seat *simSeat) bool {
	switch next := seat.nextTick(); {
	case len(seat.answers) > 0:
		b := seat.answers[0]
		seat.answers = seat.answers[1:]
		seat.todo = seat.answered(b, s.now)
	case len(seat.bulletins) > 0:
		b := seat.bulletins[0]
		seat.bulletins = seat.bulletins[1:]
		seat.todo = seat.saw(b, s.now)
	case !next.IsZero() && !next.After(s.now):
		seat.todo = seat.tick(s.now)
	case seat.role == leading && len(s.queues[keyInbox]) > 0:
		n := min(len(s.queues[keyInbox]), 4096)
		var batch [][]byte
		for _, m := range s.queues[keyInbox][:n] {
			batch = append(batch, []byte(m))
			s.count(asking, 1, len(keyInbox)+len(m))
		}
		s.queues[keyInbox] = slices.Delete(s.queues[keyInbox], 0, n)
		seat.working = true
		s.plan(time.Duration(n)*s.trip(), func() {
			if seat.dead {
				return // with what it has taken
			}
			seat.working = false
			seat.todo = seat.inbox(batch, s.now)
			s.turn(seat)
		})
		return false
	default:
		return false
	}
	return true
}

// wind has the seat's clock ring when it wants it to.
func (s *sim) wind(seat *simSeat) {
	if seat.working {
		return
	}
	next := seat.nextTick()
	if seat.role == leading {
		s.lead = seat
	}
	if next.IsZero() || !seat.alarm.IsZero() && !next.Before(seat.alarm) {
		return
	}
	seat.alarm = next
	s.plan(next.Sub(s.now), func() {
		if seat.alarm.Equal(s.now) {
			seat.alarm = time.Time{}
			s.turn(seat)
		}
	})
}

// hear takes a seat's news, and checks them against what others were told.
func (s *sim) hear(seat *simSeat) {
	for _, a := range seat.news {
		require.NotEqual(s.t, Refuse, a.Kind, "%v", a.Err)
		require.True(s.t, a.Kind != Finished || s.over && a.Err == nil, "%v", a.Why)
		if a.Kind != Place {
			continue
		}
		p := a.Placement
		seat.place = p
		round := s.rounds[p.Round]
		if round == nil {
			round = &simRound{nodes: p.Nodes, world: p.World, source: p.Source, ranks: map[int]string{}, first: s.now}
			s.rounds[p.Round] = round
		}
		require.NoError(s.t, round.told(seat.node.ID, p))
		round.last = s.now
	}
	require.Empty(s.t, seat.alarms)
	seat.news, seat.reasons, seat.changes = nil, nil, nil
}

// settled says that everybody alive is in the latest round, and nobody else.
func (s *sim) settled() {
	alive, last := 0, 0
	for r := range s.rounds {
		last = max(last, r)
	}
	for _, seat := range s.seats {
		if !seat.dead {
			alive++
			require.Equal(s.t, last, seat.place.Round, "%s", seat.node.ID)
		}
	}
	require.Equal(s.t, alive, s.rounds[last].nodes)
	require.Len(s.t, s.rounds[last].ranks, alive)
}

// done has everybody be done at some time within d.
func (s *sim) done(d time.Duration) {
	s.over = true
	for _, seat := range s.seats {
		if !seat.dead {
			s.plan(s.within(d), func() {
				seat.todo = append(seat.todo, seat.want(Event{Kind: Done, Round: seat.round})...)
				s.turn(seat)
			})
		}
	}
}

func TestNodesThatDisagreeOnARoundAreFound(t *testing.T) {
	r := &simRound{nodes: 2, world: 16, source: -1, ranks: map[int]string{}}
	p := Placement{Nodes: 2, World: 16, Source: -1}
	require.NoError(t, r.told("a", p))
	require.NoError(t, r.told("a", p))
	require.ErrorContains(t, r.told("b", p), "rank 0 is a's")
	p.Rank = 1
	require.NoError(t, r.told("b", p))
	for _, bad := range []Placement{{Nodes: 3, World: 16, Source: -1, Rank: 1}, {Nodes: 2, World: 8, Source: -1, Rank: 1}, {Nodes: 2, World: 16, Rank: 1}} {
		require.Error(t, r.told("b", bad))
	}
}

package postbox

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

// list is a box that is not clever: it goes through everything whenever something happens.
type list struct {
	early    map[int]map[uint64]*entry // by sender; an entry without a message was taken back
	next     []uint64
	messages []*entry
	receives []*want
	nth      int
}

type entry struct {
	from int
	seq  uint64
	tag  int
	void bool
	nth  int
	to   *want
}

type want struct {
	from, tag int
	nth       int
	got       *entry
}

func newList(members int) *list {
	l := &list{early: map[int]map[uint64]*entry{}, next: make([]uint64, members)}
	for i := range members {
		l.early[i] = map[uint64]*entry{}
	}
	return l
}

func (l *list) settle() {
	for from := range l.next {
		for e := l.early[from][l.next[from]]; e != nil; e = l.early[from][l.next[from]] {
			l.next[from]++
			if !e.void {
				l.nth++
				e.nth = l.nth
				l.messages = append(l.messages, e)
			}
		}
	}
	slices.SortFunc(l.messages, func(a, b *entry) int { return cmp.Compare(a.nth, b.nth) })
	slices.SortFunc(l.receives, func(a, b *want) int { return cmp.Compare(a.nth, b.nth) })
	for _, m := range l.messages {
		for _, r := range l.receives {
			if m.to == nil && r.got == nil && r.tag == m.tag && (r.from == Anyone || r.from == m.from) {
				m.to, r.got = r, m
			}
		}
	}
}

func (l *list) arrive(e *entry) {
	if e.seq >= l.next[e.from] && l.early[e.from][e.seq] == nil {
		l.early[e.from][e.seq] = e
	}
	l.settle()
}

func (l *list) receive(from, tag int) *want {
	l.nth++
	w := &want{from: from, tag: tag, nth: l.nth}
	l.receives = append(l.receives, w)
	l.settle()
	return w
}

func (l *list) end(w *want, take bool) {
	l.receives = slices.DeleteFunc(l.receives, func(o *want) bool { return o == w })
	if w.got != nil && take {
		l.messages = slices.DeleteFunc(l.messages, func(o *entry) bool { return o == w.got })
	} else if w.got != nil {
		w.got.to = nil
	}
	l.settle()
}

func (l *list) withdraw(from int, seq uint64) {
	if seq >= l.next[from] {
		l.early[from][seq] = &entry{from: from, seq: seq, void: true}
	}
	for _, m := range l.messages {
		if m.from == from && m.seq == seq {
			if m.to != nil {
				m.to.got = nil
			}
			l.messages = slices.DeleteFunc(l.messages, func(o *entry) bool { return o == m })
			break
		}
	}
	l.settle()
}

type pair struct {
	r *Receive[int]
	w *want
}

func TestABoxMatchesAsOneThatGoesThroughEverything(t *testing.T) {
	for seed := range uint64(soak.Cases(400)) {
		r := rand.New(rand.NewPCG(seed, 21))
		members := 1 + r.IntN(4)
		b, l := New[int](members), newList(members)
		sent := make([]uint64, members)
		var onTheWay []*entry
		var open []pair
		check := func(matched []*Receive[int], before map[*Receive[int]]*Message[int]) {
			for _, p := range open {
				if m := p.r.Message(); m == nil {
					require.Nil(t, p.w.got, "seed %d", seed)
				} else {
					require.NotNil(t, p.w.got, "seed %d", seed)
					require.Equal(t, [2]int{p.w.got.from, int(p.w.got.seq)}, [2]int{m.From, int(m.Seq)}, "seed %d", seed)
					if before[p.r] != m {
						require.Contains(t, matched, p.r, "seed %d: it is not told", seed)
					}
				}
			}
		}
		for range 120 {
			before := map[*Receive[int]]*Message[int]{}
			for _, p := range open {
				before[p.r] = p.r.Message()
			}
			var matched []*Receive[int]
			switch from := r.IntN(members); r.IntN(6) {
			case 0, 1: // a message sets out
				onTheWay = append(onTheWay, &entry{from: from, seq: sent[from], tag: r.IntN(3)})
				sent[from]++
			case 2: // one arrives, or arrives again
				if len(onTheWay) > 0 {
					i := r.IntN(len(onTheWay))
					e := onTheWay[i]
					if r.IntN(8) > 0 {
						onTheWay = slices.Delete(onTheWay, i, i+1)
					}
					var err error
					matched, _, err = b.Arrive(&Message[int]{From: e.from, Seq: e.seq, Tag: e.tag, State: State(r.IntN(2)) * Offered, Cost: r.IntN(2)})
					require.NoError(t, err)
					l.arrive(&entry{from: e.from, seq: e.seq, tag: e.tag})
				}
			case 3:
				from, tag := r.IntN(members+1)-1, r.IntN(3)
				p := pair{b.Receive(from, tag), l.receive(from, tag)}
				open = append(open, p)
				matched = append(matched, p.r)
			case 4: // a receive ends
				if len(open) > 0 {
					i := r.IntN(len(open))
					p := open[i]
					open = slices.Delete(open, i, i+1)
					if take := p.r.Message() != nil && r.IntN(2) == 0; take {
						b.Take(p.r)
						l.end(p.w, true)
					} else {
						matched = append(matched, b.Cancel(p.r))
						l.end(p.w, false)
					}
				}
			case 5:
				if sent[from] > 0 && r.IntN(2) == 0 {
					seq := r.Uint64N(sent[from])
					_, _, matched = b.Withdraw(from, seq)
					l.withdraw(from, seq)
				}
			}
			check(matched, before)
		}
		for _, e := range onTheWay { // all comes and is received: nothing is left
			_, _, err := b.Arrive(&Message[int]{From: e.from, Seq: e.seq, Tag: e.tag})
			require.NoError(t, err)
		}
		for _, p := range open {
			b.Cancel(p.r)
		}
		for tag := range 3 {
			for {
				r := b.Receive(Anyone, tag)
				if r.Message() == nil {
					b.Cancel(r)
					break
				}
				b.Take(r)
			}
		}
		require.Empty(t, b.waiting, "seed %d", seed)
		require.Empty(t, b.receives)
		for _, s := range b.senders {
			require.Empty(t, s.known)
			require.Empty(t, s.early)
			require.Zero(t, s.bytes)
			require.Zero(t, s.offers)
		}
	}
}

func TestASenderHasNoMoreInABoxThanIsAgreed(t *testing.T) {
	const bytes = 16 << 10
	b := New[int](2)
	seq := uint64(0)
	for ; int(seq+1)*Cost(bytes) <= Window; seq++ {
		_, taken, err := b.Arrive(&Message[int]{From: 1, Seq: seq, Cost: Cost(bytes)})
		require.True(t, taken)
		require.NoError(t, err)
	}
	_, taken, err := b.Arrive(&Message[int]{From: 1, Seq: seq, Cost: Cost(bytes)})
	require.False(t, taken)
	require.ErrorIs(t, err, ErrFull)
	for range MostOffers {
		_, taken, err := b.Arrive(&Message[int]{From: 1, Seq: seq, State: Offered})
		require.True(t, taken)
		require.NoError(t, err)
		seq++
	}
	_, _, err = b.Arrive(&Message[int]{From: 1, Seq: seq, State: Offered})
	require.ErrorIs(t, err, ErrFull)
	_, taken, err = b.Arrive(&Message[int]{Seq: 5, Cost: Cost(bytes)})
	require.True(t, taken, "another sender has its own")
	require.NoError(t, err)
	b.Take(b.Receive(1, 0))
	_, taken, _ = b.Arrive(&Message[int]{From: 1, Seq: seq, Cost: Cost(bytes)})
	require.True(t, taken)
	require.Len(t, b.Drain(), int(seq)+1)
}

// Voids count: a member that takes back what it never sent fills nothing.
func TestWhatWasNeverSentMayBeTakenBackSoManyTimes(t *testing.T) {
	b := New[int](1)
	for seq := range uint64(2 * mostEarly) {
		b.Withdraw(0, seq+1)
	}
	require.Len(t, b.senders[0].early, mostEarly)
}

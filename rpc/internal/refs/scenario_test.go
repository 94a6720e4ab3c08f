package refs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stage is a few workers, A, B and C, whose messages are delivered by hand; all that happens is
// written down.
type stage struct {
	t       *testing.T
	now     time.Time
	at      map[string]*Machine
	under   []parcel // control messages on their way
	writing strings.Builder
}

type parcel struct {
	from, to string
	packet   uint64
	msgs     []Message
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, now: time.Unix(0, 0), at: map[string]*Machine{}}
	for i, name := range []string{"A", "B", "C"} {
		s.at[name] = New(Node{i, uint64(i) + 1}, 0)
	}
	for _, m := range s.at {
		for _, o := range s.at {
			m.Meet(o.me)
		}
	}
	return s
}

func (s *stage) logf(format string, args ...any) { fmt.Fprintf(&s.writing, format+"\n", args...) }

func name(n Node) string { return string(rune('A' + n.Rank)) }

// settle writes down what the machines ask for.
func (s *stage) settle() {
	for _, who := range []string{"A", "B", "C"} {
		for _, a := range s.at[who].Actions() {
			switch a.Kind {
			case Send:
				for _, msg := range a.Messages {
					s.logf("  %s to %s: %v %d", who, name(a.To), msg.Op, msg.N)
				}
				s.under = append(s.under, parcel{who, name(a.To), a.Packet, a.Messages})
			case Freed:
				s.logf("  %s frees the value", who)
			case Confirmed:
				s.logf("  %s: confirmed", who)
			case Denied:
				s.logf("  %s: denied, %v", who, a.Err)
			}
		}
	}
}

func (s *stage) say(what string) {
	s.logf("%s", what)
	s.settle()
}

// deliver lets the oldest message of a kind arrive, and its answer.
func (s *stage) deliver(op Op) parcel {
	s.t.Helper()
	for i, p := range s.under {
		if p.msgs[0].Op == op {
			s.under = append(s.under[:i], s.under[i+1:]...)
			s.again(p)
			return p
		}
	}
	require.Fail(s.t, "no such message is under way", "%v\n%s", op, s.writing.String())
	return parcel{}
}

// again delivers a message, whether or not it was delivered before.
func (s *stage) again(p parcel) {
	from, to := s.at[p.from], s.at[p.to]
	s.logf("%v of %s reaches %s", p.msgs[0].Op, p.from, p.to)
	answers, err := to.Receive(s.now, from.me, p.msgs)
	require.NoError(s.t, err)
	s.settle()
	from.Answered(s.now, to.me, p.packet, answers)
	s.settle()
}

func (s *stage) share(from, to string, h Hold) Share {
	sh, err := s.at[from].Share(h, s.at[to].me, 0)
	require.NoError(s.t, err)
	s.say(from + " gives a reference to " + to)
	return sh
}

func (s *stage) arrive(from, to string, sh Share) Hold {
	h, ok, err := s.at[to].Arrive(s.now, s.at[from].me, sh)
	require.NoError(s.t, err)
	s.say(fmt.Sprintf("it reaches %s; confirmed: %v", to, ok))
	return h
}

func (s *stage) release(who string, h Hold) {
	s.at[who].Release(s.now, h)
	s.say(who + " releases")
}

func (s *stage) lose(who, whom string) {
	s.at[who].Lose(s.now, s.at[whom].me)
	s.say(who + " loses " + whom)
}

// empty ends a scenario: nothing is left but at those who are named.
func (s *stage) empty(golden string) {
	s.t.Helper()
	require.Equal(s.t, strings.TrimLeft(golden, "\n"), s.writing.String())
	require.Empty(s.t, s.under)
	for who, m := range s.at {
		require.Equal(s.t, Stats{}, m.Stats(), who)
	}
}

// user makes B a holder of a value of A that nobody else holds.
func (s *stage) user() Hold {
	h, id, err := s.at["B"].Create(s.at["A"].me)
	require.NoError(s.t, err)
	require.NoError(s.t, s.at["A"].Serve(s.at["B"].me, id))
	s.at["A"].Made(id, true)
	s.at["B"].Created(s.now, h, true)
	s.say("B holds a value of A")
	return h
}

func TestAParentThatReleasesAtOnceStaysUntilItsChildIsConfirmed(t *testing.T) {
	s := newStage(t)
	parent := s.user()
	sh := s.share("B", "C", parent)
	s.release("B", parent)
	child := s.arrive("B", "C", sh)
	s.deliver(Fork)
	s.deliver(Accept)
	s.deliver(Delete)
	s.release("C", child)
	s.deliver(Delete)
	s.empty(`
B holds a value of A
B gives a reference to C
B releases
it reaches C; confirmed: false
  C to A: fork 1
fork of C reaches A
  C: confirmed
  C to B: accept 1
accept of C reaches B
  B to A: delete 1
delete of B reaches A
C releases
  C to A: delete 1
delete of C reaches A
  A frees the value
`)
}

func TestADeleteDoesNotOvertakeTheForkRequestOfTheSameUser(t *testing.T) {
	s := newStage(t)
	parent := s.user()
	child := s.arrive("B", "C", s.share("B", "C", parent))
	s.release("C", child)
	s.release("B", parent)
	late := s.deliver(Fork)
	s.deliver(Accept)
	s.deliver(Delete)
	s.deliver(Delete)
	s.again(late)
	s.empty(`
B holds a value of A
B gives a reference to C
it reaches C; confirmed: false
  C to A: fork 1
C releases
B releases
fork of C reaches A
  C: confirmed
  C to B: accept 1
  C to A: delete 1
accept of C reaches B
  B to A: delete 1
delete of C reaches A
delete of B reaches A
  A frees the value
fork of C reaches A
`)
}

func TestAReferenceThatReturnsToItsOwnerNeedsNoRequest(t *testing.T) {
	s := newStage(t)
	own, _ := s.at["A"].Own()
	user := s.arrive("A", "B", s.share("A", "B", own))
	s.release("A", own)
	sh := s.share("B", "A", user)
	s.release("B", user)
	back := s.arrive("B", "A", sh)
	s.release("A", back)
	s.deliver(Accept)
	s.deliver(Delete)
	s.empty(`
A gives a reference to B
it reaches B; confirmed: true
A releases
B gives a reference to A
B releases
it reaches A; confirmed: true
  A to B: accept 1
A releases
accept of A reaches B
  B to A: delete 1
delete of B reaches A
  A frees the value
`)
}

func TestADuplicateDeleteDoesNothing(t *testing.T) {
	s := newStage(t)
	own, _ := s.at["A"].Own()
	first := s.arrive("A", "B", s.share("A", "B", own))
	second := s.arrive("A", "B", s.share("A", "B", own))
	s.release("B", first)
	d := s.deliver(Delete)
	s.again(d)
	s.again(d)
	s.release("A", own)
	s.release("B", second)
	s.deliver(Delete)
	s.again(d)
	s.empty(`
A gives a reference to B
it reaches B; confirmed: true
A gives a reference to B
it reaches B; confirmed: true
B releases
  B to A: delete 1
delete of B reaches A
delete of B reaches A
delete of B reaches A
A releases
B releases
  B to A: delete 2
delete of B reaches A
  A frees the value
delete of B reaches A
`)
}

func TestACreationThatTimedOutIsFreedWhenTheCallEnds(t *testing.T) {
	s := newStage(t)
	A, B := s.at["A"], s.at["B"]
	h, id, err := B.Create(A.me)
	require.NoError(t, err)
	require.NoError(t, A.Serve(B.me, id))
	B.Created(s.now, h, false)
	s.say("B gives up waiting")
	s.deliver(Delete)
	require.True(t, A.Has(id), "the call is under way")
	A.Made(id, true)
	s.say("the call ends at A")
	s.release("B", h)
	s.empty(`
B gives up waiting
  B to A: delete 1
delete of B reaches A
the call ends at A
  A frees the value
B releases
`)
}

func TestACreationThatArrivesAfterItsDeleteIsRefused(t *testing.T) {
	s := newStage(t)
	A, B := s.at["A"], s.at["B"]
	h, id, err := B.Create(A.me)
	require.NoError(t, err)
	B.Created(s.now, h, false)
	s.release("B", h)
	s.deliver(Delete)
	require.ErrorIs(t, A.Serve(B.me, id), ErrAbandoned)
	s.empty(`
B releases
  B to A: delete 1
delete of B reaches A
`)
}

func TestAParentLostBeforeItsChildIsConfirmedLeavesTheOwnerToDecide(t *testing.T) {
	s := newStage(t) // nobody else holds the value
	parent := s.user()
	child := s.arrive("B", "C", s.share("B", "C", parent))
	s.lose("A", "B")
	s.lose("C", "B")
	s.at["B"] = New(Node{1, 9}, 0)
	s.deliver(Fork)
	s.release("C", child)
	s.empty(`
B holds a value of A
B gives a reference to C
it reaches C; confirmed: false
  C to A: fork 1
A loses B
  A frees the value
C loses B
fork of C reaches A
  C: denied, the value is gone
C releases
`)
	s = newStage(t) // A holds it too
	own, _ := s.at["A"].Own()
	user := s.arrive("A", "B", s.share("A", "B", own))
	child = s.arrive("B", "C", s.share("B", "C", user))
	s.lose("A", "B")
	s.lose("C", "B")
	s.at["B"] = New(Node{1, 9}, 0)
	s.deliver(Fork)
	s.release("A", own)
	s.release("C", child)
	s.deliver(Delete)
	s.empty(`
A gives a reference to B
it reaches B; confirmed: true
B gives a reference to C
it reaches C; confirmed: false
  C to A: fork 1
A loses B
C loses B
fork of C reaches A
  C: confirmed
A releases
C releases
  C to A: delete 1
delete of C reaches A
  A frees the value
`)
}

func TestAReferenceOfALostOwnerIsDeniedAndItsParentLetGo(t *testing.T) {
	s := newStage(t)
	parent := s.user()
	child := s.arrive("B", "C", s.share("B", "C", parent))
	late := s.share("B", "C", parent)
	s.lose("C", "A")
	s.lose("B", "A")
	_, _, err := s.at["C"].Arrive(s.now, s.at["B"].me, late)
	require.ErrorIs(t, err, ErrLost)
	s.say("another reaches C")
	s.release("B", parent)
	s.release("C", child)
	s.deliver(Accept)
	s.deliver(Accept)
	s.at["A"], s.under = New(Node{0, 9}, 0), nil
	s.empty(`
B holds a value of A
B gives a reference to C
it reaches C; confirmed: false
  C to A: fork 1
B gives a reference to C
C loses A
  C: denied, the worker is lost
  C to B: accept 1
B loses A
another reaches C
  C to B: accept 2
B releases
C releases
accept of C reaches B
accept of C reaches B
`)
}

func TestARecalledShareDoesNotArriveAnyMore(t *testing.T) {
	s := newStage(t)
	own, _ := s.at["A"].Own()
	sh := s.share("A", "B", own)
	s.release("A", own)
	s.at["A"].Recall(s.now, s.at["B"].me, sh)
	s.at["A"].Recall(s.now, s.at["B"].me, sh)
	s.say("the message failed")
	recall := s.deliver(Recall)
	_, _, err := s.at["B"].Arrive(s.now, s.at["A"].me, sh)
	require.ErrorIs(t, err, ErrStale)
	s.again(recall)
	s.empty(`
A gives a reference to B
A releases
the message failed
  A to B: recall 1
recall of A reaches B
  A frees the value
recall of A reaches B
`)
}

// The answer to the first try is lost, and so the second must be answered in the same sense.
func TestARecallThatIsRepeatedGetsTheSameAnswer(t *testing.T) {
	s := newStage(t)
	a, b := s.at["A"], s.at["B"]
	ask := func(n uint64) Answer {
		answers, err := b.Receive(s.now, a.me, []Message{{Op: Recall, N: n}})
		require.NoError(t, err)
		return answers[0]
	}
	require.Equal(t, []Answer{OK, OK}, []Answer{ask(1), ask(1)}, "it never arrives")
	own, _ := a.Own()
	for range 2 {
		_, err := a.Share(own, b.me, 0)
		require.NoError(t, err)
	}
	h, _, err := b.Arrive(s.now, a.me, Share{ID{a.me, a.me, 1}, 2})
	require.NoError(t, err)
	require.Equal(t, []Answer{Taken, Taken}, []Answer{ask(2), ask(2)}, "it is here")
	b.Release(s.now, h)
	require.Equal(t, OK, ask(2), "its delete is on the way")
}

func TestAWorkerThatStartsAgainIsAnother(t *testing.T) {
	s := newStage(t)
	parent := s.user()
	sh := s.share("B", "C", parent)
	b, again := s.at["B"].me, Node{1, 9}
	s.lose("A", "B")
	s.at["C"].Meet(again)
	_, _, err := s.at["C"].Arrive(s.now, again, sh)
	require.NoError(t, err, "its numbers are its own")
	s.at["A"].Meet(again)
	answers, err := s.at["A"].Receive(s.now, again, []Message{{Op: Delete, N: 1}})
	require.NoError(t, err)
	require.Equal(t, []Answer{OK}, answers)
	_, err = s.at["A"].Receive(s.now, b, []Message{{Op: Delete, N: 1}})
	require.ErrorIs(t, err, ErrLost)
	require.ErrorIs(t, s.at["A"].Serve(again, ID{s.at["A"].me, b, 2}), ErrInvalid)
	require.ErrorIs(t, s.at["A"].Serve(again, ID{s.at["A"].me, again, 1}), ErrAbandoned, "it was deleted just now")
}

func TestControlMessagesAreRepeatedEverMoreSlowlyUntilAnswered(t *testing.T) {
	s := newStage(t)
	a, b := s.at["A"], s.at["B"]
	h := s.user()
	b.Release(s.now, h)
	var pauses []time.Duration
	for range 10 {
		acts := b.Actions()
		require.Len(t, acts, 1)
		require.Equal(t, []Message{{Op: Delete, N: 1}}, acts[0].Messages)
		_, ok := b.Next()
		require.False(t, ok, "it is under way")
		b.Failed(s.now, a.me, acts[0].Packet)
		b.Failed(s.now, a.me, acts[0].Packet)
		require.Empty(t, b.Actions())
		at, ok := b.Next()
		require.True(t, ok)
		pauses = append(pauses, at.Sub(s.now))
		b.Tick(at.Add(-1))
		require.Empty(t, b.Actions())
		s.now = at
		b.Tick(at)
	}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	require.Equal(t, []time.Duration{ms(50), ms(100), ms(200), ms(400), ms(800), ms(1600), ms(3200), ms(5000), ms(5000), ms(5000)}, pauses)
	b.Lose(s.now, a.me)
	_, ok := b.Next()
	require.False(t, ok)
	require.Equal(t, Stats{}, b.Stats())
}

func TestManyMessagesTravelTogether(t *testing.T) {
	s := newStage(t)
	a, b := s.at["A"], s.at["B"]
	own, _ := a.Own()
	var held []Hold
	for range 600 {
		sh, err := a.Share(own, b.me, 0)
		require.NoError(t, err)
		h, _, err := b.Arrive(s.now, a.me, sh)
		require.NoError(t, err)
		held = append(held, h)
	}
	for _, h := range held {
		b.Release(s.now, h)
	}
	packets := 0
	for acts := b.Actions(); len(acts) > 0; acts = b.Actions() {
		packets += len(acts)
		for _, act := range acts {
			answers, err := a.Receive(s.now, b.me, act.Messages)
			require.NoError(t, err)
			b.Answered(s.now, a.me, act.Packet, answers)
		}
	}
	require.Equal(t, 4+3, packets, "the first leave at once, the others wait for an answer")
	require.Equal(t, Stats{}, b.Stats())
	require.Equal(t, 1, a.Stats().Forks)
	_, err := a.Receive(s.now, b.me, make([]Message, maxPacket+1))
	require.ErrorIs(t, err, ErrLimit)
}

func TestHoldingsNameWhoHoldsWhat(t *testing.T) {
	s := newStage(t)
	h := s.user()
	own, _ := s.at["B"].Own()
	s.arrive("B", "C", s.share("B", "C", own))
	s.arrive("B", "C", s.share("B", "C", h))
	a, b, c := s.at["A"].me, s.at["B"].me, s.at["C"].me
	first, second := ID{a, b, 1}, ID{b, b, 1}
	theirs, mine := s.at["B"].Holdings()
	require.Equal(t, []Holding{{second, c}}, theirs)
	require.Equal(t, []Holding{{first, b}}, mine)
	theirs, mine = s.at["C"].Holdings()
	require.Empty(t, theirs)
	require.Equal(t, []Holding{{first, c}, {second, c}}, mine)
	require.Equal(t, Stats{Owned: 1, Forks: 2, Held: 2, PendingChildren: 1}, s.at["B"].Stats())
	require.Equal(t, Stats{Held: 2, PendingUsers: 1, Waiting: 1}, s.at["C"].Stats())
	s.at["C"].ReleaseAll(s.now)
	s.at["B"].ReleaseAll(s.now)
	s.settle()
	s.deliver(Fork)
	s.deliver(Accept)
	for range 3 {
		s.deliver(Delete)
	}
	s.release("B", own)
	for who, m := range s.at {
		require.Equal(t, Stats{}, m.Stats(), who)
	}
	require.Equal(t, "0, 1.1", first.String())
}

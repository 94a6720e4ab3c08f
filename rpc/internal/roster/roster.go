package roster

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/bits"
	"slices"

	"github.com/weft-project/weft/device"
)

// Member is what a worker tells the others of itself. It is part of the wire format.
type Member struct {
	Name        string                `cbor:"1,keyasint"`
	Rank        int                   `cbor:"2,keyasint"`
	World       int                   `cbor:"3,keyasint"` // how many workers the job has; 0: workers come and go
	Addr        string                `cbor:"4,keyasint"`
	Devices     []device.ID           `cbor:"5,keyasint"`
	Maps        map[string]device.Map `cbor:"6,keyasint,omitempty"`
	Incarnation uint64                `cbor:"7,keyasint"`
}

// State of a member, as one worker sees it. The numbers are part of the wire format.
type State uint8

// The states, in the order in which a life can go through them.
const (
	Known   State = 1
	Linked  State = 2
	Leaving State = 3 // it has announced that it leaves, and still serves
	Left    State = 4
	Lost    State = 5
)

// News is what one worker tells another of a third: Known, Leaving, Left or Lost.
type News struct {
	State  State  `cbor:"1,keyasint"`
	Member Member `cbor:"2,keyasint"`
	Cause  string `cbor:"3,keyasint,omitempty"`
}

// Kind of an action.
type Kind uint8

// What a shell is asked to do.
const (
	Changed Kind = iota // Member is in State now, because of Cause: calls to who left or is lost fail, watchers are told
	Dial                // link with Member, and tell LinkUp, DialFailed, DialRefused or DialBusy
	Tell                // send News to the linked worker of rank To
	Bury                // Member is lost: its place in the store may be taken
)

// Action is something to do.
type Action struct {
	Kind   Kind
	Member Member
	State  State
	Cause  error
	To     int
	News   News
	Later  bool // dial after a while: the other is expected to
}

type entry struct {
	Member
	state   State
	linked  bool
	rumour  string // why others say that it is lost
	told    bool   // its end was passed on
	dialled bool   // a Dial is out
	fails   int    // dials that failed in a row
	refuses bool   // the last of them was answered
	busy    int    // dials that a crowd refused, since it was linked
}

func (e *entry) alive() bool { return e.state < Left }

// Roster is one worker's view. Make it with New.
type Roster struct {
	me      Member
	mesh    int
	started bool
	leaving bool
	links   int               // how many are linked
	byRank  map[int]*entry    // the latest life at each rank, without this worker
	byName  map[string]*entry // the latest life of each name
	acts    []Action
}

// New makes the view of a worker that knows only itself. Up to mesh workers all link with each
// other.
func New(me Member, mesh int) *Roster {
	return &Roster{me: me, mesh: mesh, byRank: map[int]*entry{}, byName: map[string]*entry{}}
}

// Actions gives what is to be done since the last call, in order.
func (r *Roster) Actions() []Action {
	acts := r.acts
	r.acts = nil
	return acts
}

// Start says that all members are known that were there before: from now on the roster asks for
// links by itself.
func (r *Roster) Start() {
	r.started = true
	r.mend()
}

// Hear takes a member's own word: its record in the store, or its greeting. It fails when it is not
// of the present life.
func (r *Roster) Hear(m Member) error {
	_, err := r.learn(m, -1)
	return err
}

// learn takes in a life; from is who told, and need not be told.
func (r *Roster) learn(m Member, from int) (*entry, error) {
	if m.Rank == r.me.Rank || m.Name == r.me.Name {
		if m.Rank == r.me.Rank && m.Name == r.me.Name && m.Incarnation == r.me.Incarnation {
			return nil, nil
		}
		return nil, fmt.Errorf("rank %d and the name %q are this worker's, %s of rank %d", m.Rank, m.Name, r.me.Name, r.me.Rank)
	}
	old, namesake := r.byRank[m.Rank], r.byName[m.Name]
	for _, e := range []*entry{old, namesake} {
		if e != nil && e.Incarnation > m.Incarnation {
			return nil, fmt.Errorf("%s of rank %d has come since", e.Name, e.Rank)
		}
	}
	if old != nil && old.Incarnation == m.Incarnation {
		if old.Name != m.Name {
			return nil, fmt.Errorf("that is %s, not %s", old.Name, m.Name)
		}
		return old, nil
	}
	for _, e := range []*entry{old, namesake} {
		if e != nil && e.alive() {
			r.endLife(e, Lost, fmt.Errorf("%s of rank %d took its place", m.Name, m.Rank), from)
		}
	}
	e := &entry{Member: m, state: Known}
	r.byRank[m.Rank], r.byName[m.Name] = e, e
	r.acts = append(r.acts, Action{Kind: Changed, Member: m, State: Known})
	r.notify(News{State: Known, Member: m}, m.Rank, from)
	r.mend()
	return e, nil
}

// LinkUp says that there is a link with that life. It fails where that life is over, or not known:
// then the link is to be closed.
func (r *Roster) LinkUp(rank int, incarnation uint64) error {
	e := r.life(rank, incarnation)
	switch {
	case e == nil:
		return fmt.Errorf("rank %d is not known in this life", rank)
	case !e.alive():
		return fmt.Errorf("%s is gone", e.Name)
	case e.linked:
		return nil
	}
	r.links++
	e.linked, e.fails, e.refuses, e.busy, e.rumour, e.dialled = true, 0, false, 0, "", false
	if e.state == Known {
		e.state = Linked
		r.acts = append(r.acts, Action{Kind: Changed, Member: e.Member, State: Linked})
	}
	if r.leaving {
		r.acts = append(r.acts, Action{Kind: Tell, To: rank, News: News{State: Leaving, Member: r.me}})
	}
	for _, o := range r.byRank { // what is passed on once must not pass this one by
		if o.alive() && o.rumour != "" {
			r.acts = append(r.acts, Action{Kind: Tell, To: rank, News: News{State: Lost, Member: o.Member, Cause: o.rumour}})
		}
	}
	return nil
}

// LinkDown says that a link is gone: the peer closed it, or was lost.
func (r *Roster) LinkDown(rank int, incarnation uint64, left bool, cause error) {
	e := r.life(rank, incarnation)
	if e == nil || !e.alive() || !e.linked {
		return
	}
	state := Lost
	if left {
		state = Left
	}
	r.endLife(e, state, cause, -1)
}

// Unlinked says that a link is gone that the other end never took for one: no life is over by it.
func (r *Roster) Unlinked(rank int, incarnation uint64) {
	if e := r.life(rank, incarnation); e != nil && e.linked {
		r.links--
		e.linked = false
		r.mend()
	}
}

// Doubted says that others have lost that life.
func (r *Roster) Doubted(rank int, incarnation uint64) bool {
	e := r.life(rank, incarnation)
	return e != nil && e.rumour != ""
}

// DialFailed says that no link came about. Once may be chance; not twice, nor where others have
// lost the member.
func (r *Roster) DialFailed(rank int, incarnation uint64, cause error) {
	r.dialFailed(rank, incarnation, cause, false)
}

// DialRefused says that somebody answered, and refused the link. So it is lost to this worker, but
// may be there for others: its place in the store stays its own.
func (r *Roster) DialRefused(rank int, incarnation uint64, cause error) {
	r.dialFailed(rank, incarnation, cause, true)
}

func (r *Roster) dialFailed(rank int, incarnation uint64, cause error, refuses bool) {
	e := r.life(rank, incarnation)
	if e == nil || !e.alive() || e.linked {
		return
	}
	e.dialled, e.refuses = false, refuses
	e.fails++
	if e.rumour != "" {
		r.endLife(e, Lost, fmt.Errorf("it does not answer (%w), and others say: %s", cause, e.rumour), -1)
	} else if e.fails >= maxFails {
		r.endLife(e, Lost, cause, -1)
	} else {
		r.mend()
	}
}

// DialBusy says that a crowd at the peer refused a dial. That is no sign that it is lost, unless it
// goes on: who has come to its address in its place could say so for ever.
func (r *Roster) DialBusy(rank int, incarnation uint64, cause error) {
	e := r.life(rank, incarnation)
	if e == nil || !e.alive() || e.linked {
		return
	}
	e.dialled = false
	e.busy++
	switch {
	case e.busy >= maxBusy:
		r.endLife(e, Lost, cause, -1)
	case e.rumour != "":
		r.dial(e, true)
	default:
		r.mend()
	}
}

const (
	maxFails = 2
	maxBusy  = 10 // each takes seconds
)

// Gossip takes news from a linked worker.
func (r *Roster) Gossip(from int, n News) {
	if n.Member.Rank == r.me.Rank {
		return // this worker knows best
	}
	if n.State < Known || n.State > Lost {
		return
	}
	present := r.byRank[n.Member.Rank]
	met := present != nil && present.Incarnation >= n.Member.Incarnation
	e, err := r.learn(n.Member, from)
	if err != nil || e == nil {
		return
	}
	if !met && n.State < Leaving {
		return
	}
	if n.State < Left && !e.alive() { // who says so has missed the end
		r.acts = append(r.acts, Action{Kind: Tell, To: from, News: News{State: e.state, Member: e.Member, Cause: e.rumour}})
		return
	}
	if !e.alive() || n.State <= e.state && n.State < Left {
		return
	}
	switch n.State {
	case Leaving:
		e.state = Leaving
		r.acts = append(r.acts, Action{Kind: Changed, Member: e.Member, State: Leaving})
		r.notify(n, e.Rank, from)
	case Left, Lost:
		switch {
		case e.linked: // the link tells, sooner or later
		case n.State == Left:
			r.endLife(e, Left, errors.New(n.Cause), from)
		case e.rumour == "":
			e.rumour = max(n.Cause, "lost")
			r.tellEnd(e, n, from)
			e.dialled = false // a dial that is out is not to wait, nor to take long
			r.dial(e, false)
		}
	}
}

// Leave announces that this worker is about to leave.
func (r *Roster) Leave() {
	if !r.leaving {
		r.leaving = true
		r.notify(News{State: Leaving, Member: r.me}, -1, -1)
	}
}

// endLife ends a life.
func (r *Roster) endLife(e *entry, state State, cause error, from int) {
	if e.linked {
		r.links--
	}
	e.state, e.linked = state, false
	r.acts = append(r.acts, Action{Kind: Changed, Member: e.Member, State: state, Cause: cause})
	if state == Lost && !e.refuses {
		r.acts = append(r.acts, Action{Kind: Bury, Member: e.Member})
	}
	r.tellEnd(e, News{State: state, Member: e.Member, Cause: cause.Error()}, from)
	if e.rumour == "" {
		e.rumour = cause.Error()
	}
	r.mend()
}

// tellEnd passes the end of a life on, once.
func (r *Roster) tellEnd(e *entry, n News, from int) {
	if !e.told {
		e.told = true
		r.notify(n, e.Rank, from)
	}
}

// notify passes news on to all linked workers but two.
func (r *Roster) notify(n News, about, from int) {
	if r.links == 0 {
		return
	}
	for _, rank := range slices.Sorted(maps.Keys(r.byRank)) {
		if e := r.byRank[rank]; e.linked && rank != about && rank != from {
			r.acts = append(r.acts, Action{Kind: Tell, To: rank, News: n})
		}
	}
}

func (r *Roster) dial(e *entry, later bool) {
	if !e.dialled && !e.linked && e.alive() {
		e.dialled = true
		r.acts = append(r.acts, Action{Kind: Dial, Member: e.Member, Later: later})
	}
}

func (r *Roster) life(rank int, incarnation uint64) *entry {
	if e := r.byRank[rank]; e != nil && e.Incarnation == incarnation {
		return e
	}
	return nil
}

// ring is the ranks of all that live, in order, and the place of this worker among them.
func (r *Roster) ring() (ranks []int, me int) {
	ranks = append(ranks, r.me.Rank)
	for rank, e := range r.byRank {
		if e.alive() {
			ranks = append(ranks, rank)
		}
	}
	slices.Sort(ranks)
	return ranks, slices.Index(ranks, r.me.Rank)
}

// mend asks for links with the neighbours in the ring. The younger of two dials; the older after a
// while, for it may have died. A crowd is given a while too.
func (r *Roster) mend() {
	if !r.started {
		return
	}
	ranks, me := r.ring()
	for _, i := range []int{me + 1, me - 1} {
		e := r.byRank[ranks[(i+len(ranks))%len(ranks)]]
		if e != nil {
			r.dial(e, e.Incarnation > r.me.Incarnation || e.busy > 0)
		}
	}
}

// Fingers are the ranks to link with when joining.
func (r *Roster) Fingers() []int {
	ranks, me := r.ring()
	n := len(ranks)
	if n <= r.mesh {
		return slices.Delete(ranks, me, me+1)
	}
	var fingers []int
	for k := range bits.Len(uint(n - 1)) {
		fingers = append(fingers, ranks[(me+1<<k)%n], ranks[(me+n-1<<k)%n])
	}
	slices.Sort(fingers)
	fingers = slices.Compact(fingers)
	return slices.DeleteFunc(fingers, func(rank int) bool { return rank == r.me.Rank })
}

// All gives what this worker knows of who lives, itself included, as news.
func (r *Roster) All() []News {
	mine := News{State: Known, Member: r.me}
	if r.leaving {
		mine.State = Leaving
	}
	all := []News{mine}
	for _, rank := range slices.Sorted(maps.Keys(r.byRank)) {
		if e := r.byRank[rank]; e.state == Leaving {
			all = append(all, News{State: Leaving, Member: e.Member})
		} else if e.alive() {
			all = append(all, News{State: Known, Member: e.Member})
		}
	}
	return all
}

// Digest is the same for two workers that know of the same lives.
func (r *Roster) Digest() uint64 {
	var sum uint64
	for _, n := range r.All() {
		h := fnv.New64a()
		fmt.Fprintf(h, "%d %d %d", n.Member.Rank, n.Member.Incarnation, n.State)
		sum ^= h.Sum64()
	}
	return sum
}

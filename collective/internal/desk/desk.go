package desk

import (
	"container/list"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weft-project/weft/collective/internal/fold"
	"github.com/weft-project/weft/collective/internal/plan"
	"github.com/weft-project/weft/device"
)

// Key names an operation of a group: the N-th that is called in its scope, or a part of it. Parts
// are over when their operation is, and fail with it.
type Key struct {
	Scope string
	N     uint64
	Part  int // from 1; 0 for the operation itself
}

// Own begins the scopes of a group's own.
const Own = "\x00"

// String names the key for readers, without Own.
func (k Key) String() string { return strings.TrimPrefix(k.Name(), Own) }

// Name tells the key apart from all others.
func (k Key) Name() string {
	s := fmt.Sprintf("#%d", k.N)
	if k.Scope != "" {
		s = fmt.Sprintf("%s#%d", k.Scope, k.N)
	}
	if k.Part > 0 {
		s += fmt.Sprintf(".%d", k.Part)
	}
	return s
}

// Whole is the operation that k is a part of.
func (k Key) Whole() Key { return Key{Scope: k.Scope, N: k.N} }

// Call is what a member calls.
type Call struct {
	Kind      plan.Kind
	Algorithm plan.Algorithm
	Op        fold.Op      // of kinds that sum
	Dtype     device.Dtype // Invalid: bytes
	Count     int          // elements; -1 where members may bring different numbers
	Root      int
	For       string        // more that must be the same on all members
	Line      string        // of the user's code
	Left      time.Duration // until the caller's deadline, when it was sent; 0: none
}

// fits says whether two calls are of one operation.
func (a Call) fits(b Call) bool {
	return a.Kind == b.Kind && a.Algorithm == b.Algorithm && a.Op == b.Op && a.Dtype == b.Dtype && a.Count == b.Count && a.Root == b.Root && a.For == b.For
}

func (a Call) String() string { return a.What() + " at " + a.Line }

// What says what is called, and not where.
func (a Call) What() string {
	s := a.Kind.String()
	if a.Kind.Sums() {
		s += fmt.Sprintf(" %v", a.Op)
	}
	if a.Dtype != device.Invalid && a.Count >= 0 {
		s += fmt.Sprintf(" of %d %v", a.Count, a.Dtype)
	} else if a.Dtype != device.Invalid {
		s += fmt.Sprintf(" of %v", a.Dtype)
	}
	if a.Kind.Rooted() {
		s += fmt.Sprintf(" with root %d", a.Root)
	}
	if a.For != "" {
		s += " for " + a.For
	}
	return s + " by " + a.Algorithm.String()
}

// ErrMismatch says that members called different things under one key.
var ErrMismatch = errors.New("members of the group called different operations")

// MismatchError says what two members called under one key.
type MismatchError struct {
	Key   Key
	Ranks [2]int
	Calls [2]Call
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%v: operation %v: rank %d calls %v, rank %d calls %v", ErrMismatch, e.Key, e.Ranks[0], e.Calls[0], e.Ranks[1], e.Calls[1])
}

// Unwrap gives ErrMismatch.
func (e *MismatchError) Unwrap() error { return ErrMismatch }

// ErrAhead says that a member has begun more operations than this one may be behind.
var ErrAhead = errors.New("a member is too many operations ahead")

// ErrTwice says that an operation was begun under a key that is in use, or was.
var ErrTwice = errors.New("an operation of that key was begun before")

// What may have arrived that this member has not begun: so many operations, and so many bytes of
// each other member. Each message counts for some bytes more.
const (
	Ahead      = 4096
	AheadBytes = 192 << 20
	overhead   = 256
)

// Mail is where something that was sent belongs. In a step below 0 a member only says what it
// calls.
type Mail struct{ From, Step int }

// Desk is one member's part in the operations of a group. T is what is sent.
type Desk[T any] struct {
	ops    map[Key]*operation[T]
	scopes map[string]*scope
	idle   *list.List           // of scopes, the one that was used longest ago first
	parts  map[Key]map[int]bool // of operations that go on: their parts that have ended
	ahead  int                  // operations that were not begun here
	held   map[int]int          // by member: bytes that it has sent of those
	broken error
	left   map[int]error // members that have ended their part in good order
}

type operation[T any] struct {
	mine   *Call
	theirs map[int]Call // what each member has said first
	steps  []plan.Step  // what this member waits for; nil: anything
	inbox  map[Mail]T
	taken  map[Mail]bool
	held   map[int]int // by member: the bytes of what it has sent before this member began
	asked  []int       // members that want to know when this one begins
	failed error
}

// New makes a desk.
func New[T any]() *Desk[T] {
	return &Desk[T]{ops: map[Key]*operation[T]{}, scopes: map[string]*scope{}, idle: list.New(), parts: map[Key]map[int]bool{}, held: map[int]int{}, left: map[int]error{}}
}

func (d *Desk[T]) at(k Key) *operation[T] {
	op := d.ops[k]
	if op == nil {
		op = &operation[T]{theirs: map[int]Call{}, inbox: map[Mail]T{}, taken: map[Mail]bool{}}
		d.ops[k] = op
		d.ahead++
	}
	return op
}

// Begin says what this member calls. The error is the operation's where it has failed already; a
// [MismatchError] that is found now is to be told to all. Whoever gets an error other than ErrTwice
// calls End. From now on nothing is kept but what one of the steps waits for, where any are given.
func (d *Desk[T]) Begin(rank int, k Key, c Call, steps ...plan.Step) error {
	if d.over(k) || d.ops[k] != nil && d.ops[k].mine != nil {
		return fmt.Errorf("%w: %v", ErrTwice, k)
	}
	op := d.at(k)
	op.mine, op.steps = &c, steps
	d.ahead--
	d.noteBegun(k)
	d.giveRoom(op)
	if op.failed == nil {
		op.failed = d.broken
	}
	if op.failed == nil {
		op.failed = d.failedWhole(k)
	}
	for r := range op.theirs {
		d.compare(rank, k, op, r)
	}
	for _, err := range d.left { // it has ended nothing that this member had not begun
		if op.failed == nil {
			op.failed = err
		}
	}
	return op.failed
}

// compare fails the operation where a member calls something else.
func (d *Desk[T]) compare(rank int, k Key, op *operation[T], from int) {
	if op.failed == nil && op.mine != nil && !op.mine.fits(op.theirs[from]) {
		e := &MismatchError{Key: k, Ranks: [2]int{rank, from}, Calls: [2]Call{*op.mine, op.theirs[from]}}
		if from < rank {
			e.Ranks, e.Calls = [2]int{from, rank}, [2]Call{op.theirs[from], *op.mine}
		}
		op.failed = e
	}
}

// giveRoom gives a member room again for what it has sent of an operation.
func (d *Desk[T]) giveRoom(op *operation[T]) {
	for from, n := range op.held {
		if d.held[from] -= n; d.held[from] == 0 {
			delete(d.held, from)
		}
	}
	op.held = nil
}

// hold takes a message of an operation that was not begun here, if there is room.
func (d *Desk[T]) hold(k Key, op *operation[T], from, bytes int) error {
	bytes += overhead
	if d.held[from]+bytes > AheadBytes {
		return fmt.Errorf("%w: rank %d sends %d bytes of %v, and has %d here", ErrAhead, from, bytes, k, d.held[from])
	}
	if op.held == nil {
		op.held = map[int]int{}
	}
	op.held[from] += bytes
	d.held[from] += bytes
	return nil
}

// Held is how many bytes wait here of operations that this member has not begun.
func (d *Desk[T]) Held() (bytes int) {
	for _, n := range d.held {
		bytes += n
	}
	return bytes
}

// awaits says whether a step waits for a message.
func (op *operation[T]) awaits(m Mail) bool {
	if op.mine == nil || op.steps == nil {
		return true
	}
	return m.Step < len(op.steps) && slices.ContainsFunc(op.steps[m.Step].Recv, func(r plan.Move) bool { return r.Peer == m.From })
}

// Arrive takes what a member has sent of an operation, with what it takes of this member's memory.
// Where it is of no use any more, kept is false. A failure that is found now is to be told to all.
func (d *Desk[T]) Arrive(rank int, k Key, c Call, m Mail, it T, bytes int) (kept bool, failure error) {
	if d.over(k) || d.broken != nil {
		return false, nil
	}
	if d.ops[k] == nil && d.ahead >= Ahead {
		return false, fmt.Errorf("%w: rank %d sends of %v", ErrAhead, m.From, k)
	}
	op := d.at(k)
	if op.failed != nil {
		return false, nil
	}
	if _, said := op.theirs[m.From]; !said {
		op.theirs[m.From] = c
		if d.compare(rank, k, op, m.From); op.failed != nil {
			return false, op.failed
		}
	}
	if _, twice := op.inbox[m]; twice || op.taken[m] || m.Step < 0 || !op.awaits(m) {
		return false, nil
	}
	if op.mine == nil {
		if op.failed = d.hold(k, op, m.From, bytes); op.failed != nil {
			return false, op.failed
		}
	}
	op.inbox[m] = it
	return true, nil
}

// Take gives what a member has sent for a step, once.
func (d *Desk[T]) Take(k Key, m Mail) (it T, ok bool, err error) {
	op := d.ops[k]
	if op == nil {
		return it, false, fmt.Errorf("%w: %v has ended", ErrTwice, k)
	}
	if op.failed == nil {
		op.failed = d.failedWhole(k)
	}
	if op.failed != nil {
		return it, false, op.failed
	}
	if it, ok = op.inbox[m]; ok {
		delete(op.inbox, m)
		op.taken[m] = true
		return it, true, nil
	}
	if err := d.left[m.From]; err != nil {
		op.failed = err
	}
	return it, false, op.failed
}

// failedWhole is what the operation has failed with that k is a part of.
func (d *Desk[T]) failedWhole(k Key) error {
	if whole := d.ops[k.Whole()]; k.Part > 0 && whole != nil {
		return whole.failed
	}
	return nil
}

// Leave says that a member has ended its part in good order, and that all that it sent has arrived.
// What needs nothing more of it goes on.
func (d *Desk[T]) Leave(rank int, err error) { d.left[rank] = err }

// Left is what a member has ended its part with; nil while it has not.
func (d *Desk[T]) Left(rank int) error { return d.left[rank] }

// Fail ends an operation that has no outcome yet. It says whether that is news.
func (d *Desk[T]) Fail(k Key, err error) bool {
	if d.over(k) || d.ops[k] == nil && d.ahead >= Ahead {
		return false
	}
	op := d.at(k)
	if op.failed != nil {
		return false
	}
	op.failed = err
	return true
}

// Break fails all operations that have no outcome yet, and those to come.
func (d *Desk[T]) Break(err error) {
	if d.broken != nil {
		return
	}
	d.broken = err
	for _, op := range d.ops {
		if op.failed == nil {
			op.failed = err
		}
	}
}

// Broken is what the group ended with.
func (d *Desk[T]) Broken() error { return d.broken }

// End forgets an operation, and gives what nobody has taken.
func (d *Desk[T]) End(k Key) (rest []T) {
	op := d.ops[k]
	if op == nil {
		return nil
	}
	for _, it := range op.inbox {
		rest = append(rest, it)
	}
	d.giveRoom(op)
	delete(d.ops, k)
	if d.over(k) { // with the operation that it is a part of
		return rest
	}
	if k.Part > 0 {
		if d.parts[k.Whole()] == nil {
			d.parts[k.Whole()] = map[int]bool{}
		}
		d.parts[k.Whole()][k.Part] = true
		return rest
	}
	rest = append(rest, d.endParts(k)...)
	d.noteEnded(k)
	return rest
}

// endParts forgets the parts of an operation that ends, and gives what was sent of those that this
// member has not begun.
func (d *Desk[T]) endParts(k Key) (rest []T) {
	delete(d.parts, k)
	for at, op := range d.ops {
		if at.Part == 0 || at.Whole() != k || op.mine != nil {
			continue
		}
		d.ahead--
		d.giveRoom(op)
		for _, it := range op.inbox {
			rest = append(rest, it)
		}
		delete(d.ops, at)
	}
	return rest
}

// Drain gives what was sent of operations that this member has not begun, and forgets them.
func (d *Desk[T]) Drain() (rest []T) {
	for k, op := range d.ops {
		if op.mine == nil {
			d.ahead--
			for _, it := range op.inbox {
				rest = append(rest, it)
			}
			d.giveRoom(op)
			delete(d.ops, k)
		}
	}
	return rest
}

// Ask is Called for another member. Where this one has not begun that, Asked lists who has asked.
func (d *Desk[T]) Ask(k Key, from int) (c Call, ok bool) {
	if c, ok = d.Called(k); ok || d.over(k) || d.broken != nil || d.ops[k] == nil && d.ahead >= Ahead {
		return c, ok
	}
	if op := d.at(k); op.mine == nil && !slices.Contains(op.asked, from) {
		op.asked = append(op.asked, from)
	}
	return c, false
}

// Asked lists the members that wanted to know when this one begins.
func (d *Desk[T]) Asked(k Key) []int {
	if op := d.ops[k]; op != nil {
		return op.asked
	}
	return nil
}

// Over says whether an operation has an outcome.
func (d *Desk[T]) Over(k Key) bool { return d.ops[k] == nil || d.ops[k].failed != nil }

// Called is what this member has called under a key, where that has no outcome yet.
func (d *Desk[T]) Called(k Key) (c Call, ok bool) {
	op := d.ops[k]
	if op == nil || op.mine == nil || op.failed != nil {
		return Call{}, false
	}
	return *op.mine, true
}

// Said is what a member has said first of an operation, if it has.
func (d *Desk[T]) Said(k Key, rank int) (c Call, ok bool) {
	if op := d.ops[k]; op != nil {
		c, ok = op.theirs[rank]
	}
	return c, ok
}

// Waiting lists the operations that were begun here and have no outcome, with the members that have
// not said yet what they call.
func (d *Desk[T]) Waiting(rank, size int) map[Key][]int {
	all := map[Key][]int{}
	for k, op := range d.ops {
		if op.mine == nil || op.failed != nil {
			continue
		}
		var silent []int
		for r := range size {
			if _, said := op.theirs[r]; r != rank && !said {
				silent = append(silent, r)
			}
		}
		all[k] = silent
	}
	return all
}

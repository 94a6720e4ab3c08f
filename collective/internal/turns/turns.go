package turns

import (
	"cmp"
	"slices"
)

// Key names an operation, on all its members alike: it is the N-th of a group.
type Key struct {
	Group string
	N     uint64
}

// Line is the order on one member. The zero value is ready.
type Line struct {
	clock   uint64
	waiting []entry
}

type entry struct {
	key     Key
	time    uint64 // it is not before that
	settled bool
}

// before orders turns; equal times are told apart by key.
func before(a, b entry) int {
	return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.key.Group, b.key.Group), cmp.Compare(a.key.N, b.key.N))
}

// Enter puts an operation into the line, and gives the time that the other members are to know.
func (l *Line) Enter(k Key) uint64 {
	l.clock++
	l.waiting = append(l.waiting, entry{key: k, time: l.clock})
	return l.clock
}

// Settle has the turn of an operation be the latest of its members' times. It gives what can go
// now, in order.
func (l *Line) Settle(k Key, times []uint64) (turn []Key) {
	at := slices.Max(times)
	l.clock = max(l.clock, at)
	for i := range l.waiting {
		if e := &l.waiting[i]; e.key == k {
			e.time, e.settled = at, true
		}
	}
	return l.free()
}

// Leave takes an operation out of the line, whose group has failed. It gives what can go now.
func (l *Line) Leave(k Key) (turn []Key) {
	l.waiting = slices.DeleteFunc(l.waiting, func(e entry) bool { return e.key == k })
	return l.free()
}

// free takes those out that nothing can come before. What is not settled comes at its own time at
// the earliest.
func (l *Line) free() (turn []Key) {
	slices.SortFunc(l.waiting, before)
	n := 0
	for n < len(l.waiting) && l.waiting[n].settled {
		turn = append(turn, l.waiting[n].key)
		n++
	}
	l.waiting = slices.Delete(l.waiting, 0, n)
	return turn
}

package ctx

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// table is what the members of a group know of one backward of theirs: which of their shared
// operations it reaches. It is a pure state machine: facts in, decisions out. Operations are
// numbered by the order of their keys, members by rank.
//
// An operation takes part where any member reaches it and any member wants a gradient from it. A
// member reaches it from its roots, or from an input of an operation that takes part. So a member
// without a loss still gets the gradients that the losses of others cause.
type table struct {
	ops   int
	facts [][]fact // by rank, then by operation; nil: not heard yet
}

// fact is what one member knows of an operation in its own graph.
type fact struct {
	wants bool  // an input requires a gradient here
	yes   bool  // it is reached
	open  bool  // it may be, which an operation of another group decides
	when  []int // it is where one of these operations takes part
}

func newTable(ops, members int) *table { return &table{ops: ops, facts: make([][]fact, members)} }

// decide says which operations take part. ok is false while that depends on what is not known.
func (t *table) decide() (live []bool, ok bool) {
	if slices.ContainsFunc(t.facts, func(f []fact) bool { return f == nil }) { // who has said nothing may have failed
		return nil, false
	}
	live = t.closure(false)
	return live, slices.Equal(live, t.closure(true))
}

// closure is the operations that take part where all that is open is so.
func (t *table) closure(open bool) []bool {
	live := make([]bool, t.ops)
	for again := true; again; {
		again = false
		for i := t.ops - 1; i >= 0; i-- { // later ones lead to earlier ones, mostly
			if !live[i] && t.takesPart(i, live, open) {
				live[i], again = true, true
			}
		}
	}
	return live
}

func (t *table) takesPart(op int, live []bool, open bool) bool {
	wanted, reached := false, false
	for _, facts := range t.facts {
		f := facts[op]
		wanted = wanted || f.wants
		reached = reached || f.yes || f.open && open || slices.ContainsFunc(f.when, func(i int) bool { return live[i] })
	}
	return wanted && reached
}

// What a byte of a fact says.
const (
	factWants = 1 << iota
	factYes
	factOpen
)

// appendFacts writes what a member says of all operations.
func appendFacts(b []byte, facts []fact) []byte {
	for _, f := range facts {
		var bits byte
		for i, set := range [...]bool{f.wants, f.yes, f.open} {
			if set {
				bits |= 1 << i
			}
		}
		b = binary.AppendUvarint(append(b, bits), uint64(len(f.when)))
		for _, i := range f.when {
			b = binary.AppendUvarint(b, uint64(i))
		}
	}
	return b
}

// parseFacts reads what appendFacts wrote of so many operations.
func parseFacts(b []byte, ops int) ([]fact, error) {
	facts := make([]fact, 0, min(ops, len(b)))
	number := func() (int, bool) {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > uint64(ops) {
			return 0, false
		}
		b = b[n:]
		return int(v), true
	}
	for len(facts) < ops && len(b) > 0 {
		f := fact{wants: b[0]&factWants != 0, yes: b[0]&factYes != 0, open: b[0]&factOpen != 0}
		b = b[1:]
		n, ok := number()
		for ; ok && n > 0; n-- {
			var i int
			if i, ok = number(); ok {
				f.when, ok = append(f.when, i), i < ops
			}
		}
		if !ok {
			return nil, fmt.Errorf("%w: what is said of operation %d of a backward is cut short", ErrProtocol, len(facts))
		}
		facts = append(facts, f)
	}
	if len(facts) != ops || len(b) > 0 {
		return nil, fmt.Errorf("%w: of %d operations that take part in a backward %d are told of", ErrProtocol, ops, len(facts))
	}
	return facts, nil
}

package plan

import "fmt"

// Kind is what an operation does. The numbers travel between members.
type Kind uint8

// The operations. Root is a member that some of them have.
const (
	AllReduce     Kind = iota + 1 // raw of all → the sums of all pieces, at all
	Reduce                        // raw of all → the sums of all pieces, at the root
	ReduceScatter                 // raw of all → the sum of piece r, at member r
	Broadcast                     // raw of the root → at all
	AllGather                     // piece r of member r → at all
	Gather                        // piece r of member r → at the root
	Scatter                       // raw of the root → piece r at member r
	AllToAll                      // raw of all → pieces r of all, at member r
	Barrier                       // as AllGather, of nothing
)

var kinds = [...]string{"AllReduce", "Reduce", "ReduceScatter", "Broadcast", "AllGather", "Gather", "Scatter", "AllToAll", "Barrier"}

// Known says whether it is one of the operations.
func (k Kind) Known() bool { return k >= AllReduce && k <= Barrier }

// Rooted says whether the operation has a root.
func (k Kind) Rooted() bool { return k == Reduce || k == Broadcast || k == Gather || k == Scatter }

// Sums says whether the operation sums.
func (k Kind) Sums() bool { return k == AllReduce || k == Reduce || k == ReduceScatter }

func (k Kind) String() string {
	if !k.Known() {
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
	return kinds[k-1]
}

// Slot is a part of an operation's data.
type Slot struct {
	Of    int // whose piece it is; [All] for the sum of all members' pieces
	Piece int
}

// All is in place of a member where a slot is a sum.
const All = -1

// Raw is a piece of a member's array.
func Raw(member, piece int) Slot { return Slot{member, piece} }

// Sum is a piece of the sum of all members' arrays.
func Sum(piece int) Slot { return Slot{All, piece} }

// Move is what one member sends to another in a step: one message.
type Move struct {
	Peer  int
	Slots []Slot
}

// Step is one step of a member.
type Step struct {
	Send []Move
	Recv []Move
	Sum  []int // pieces, whose raw slots of all members are there by now
}

// Plan is what one member does.
type Plan struct {
	Steps []Step
	Out   []Slot // what the member has at last, in the order in which its result holds it
}

// brings lists the slots that a member has before it begins.
func brings(kind Kind, size, rank, root int) []Slot {
	switch {
	case kind == AllGather || kind == Gather || kind == Barrier:
		return []Slot{Raw(rank, rank)}
	case kind.Sums() || kind == AllToAll || rank == root:
		return pieces(rank, size)
	}
	return nil
}

// gets lists the slots that a member is to have at last.
func gets(kind Kind, size, rank, root int) []Slot {
	switch kind {
	case AllReduce:
		return pieces(All, size)
	case Reduce:
		if rank == root {
			return pieces(All, size)
		}
	case ReduceScatter:
		return []Slot{Sum(rank)}
	case Broadcast:
		return pieces(root, size)
	case AllGather:
		return own(size)
	case Gather:
		if rank == root {
			return own(size)
		}
	case Scatter:
		return []Slot{Raw(root, rank)}
	case AllToAll:
		var all []Slot
		for r := range size {
			all = append(all, Raw(r, rank))
		}
		return all
	}
	return nil
}

// pieces lists all pieces of a member's array, or of the sum.
func pieces(of, size int) []Slot {
	all := make([]Slot, size)
	for i := range all {
		all[i] = Slot{of, i}
	}
	return all
}

// own lists the piece of each member that has its number.
func own(size int) []Slot {
	all := make([]Slot, size)
	for r := range all {
		all[r] = Raw(r, r)
	}
	return all
}

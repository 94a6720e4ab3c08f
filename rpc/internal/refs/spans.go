package refs

import "sort"

// spans is a set of numbers, kept as its runs in order. Where nearly all numbers up to the largest
// are in it, it is small.
//
// It is all that a receiver remembers of what is over, and it is bounded without a clock, because
// every number is used up in the end: a claim by the Fork, by the call that makes the value, or by
// the Delete that follows when that call fails; a share by its message or its Recall; a ticket by
// the answer or the Abandon. So a gap between two runs is something that is under way at its
// sender. A peer that leaves gaps on purpose reaches a limit and is refused.
type spans []span

type span struct{ from, to uint64 } // both in it

// at is the index of the first run that ends at n or later.
func (s spans) at(n uint64) int { return sort.Search(len(s), func(i int) bool { return s[i].to >= n }) }

func (s spans) has(n uint64) bool {
	i := s.at(n)
	return i < len(s) && s[i].from <= n
}

// add puts n in the set; it changes nothing where that would take more than limit runs.
func (s *spans) add(n uint64, limit int) bool {
	i := s.at(n)
	if i < len(*s) && (*s)[i].from <= n {
		return true
	}
	before := i > 0 && (*s)[i-1].to == n-1
	after := i < len(*s) && n != ^uint64(0) && (*s)[i].from == n+1
	switch {
	case before && after:
		(*s)[i-1].to = (*s)[i].to
		*s = append((*s)[:i], (*s)[i+1:]...)
	case before:
		(*s)[i-1].to = n
	case after:
		(*s)[i].from = n
	case len(*s) >= limit:
		return false
	default:
		*s = append(*s, span{})
		copy((*s)[i+1:], (*s)[i:])
		(*s)[i] = span{n, n}
	}
	return true
}

package ledger

import (
	"cmp"
	"slices"
)

// Span is rows of a step, by their places in its batch: from Lo to below Hi.
type Span struct {
	_      struct{} `cbor:",toarray"`
	Lo, Hi int
}

// Len is how many rows spans have.
func Len(spans []Span) (n int) {
	for _, s := range spans {
		n += s.Hi - s.Lo
	}
	return n
}

// Rest is what spans leave of the first n rows. ok is false where they overlap, or go beyond.
func Rest(n int, spans []Span) (rest []Span, ok bool) {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Or(cmp.Compare(a.Lo, b.Lo), cmp.Compare(a.Hi, b.Hi)) })
	at := 0
	for _, s := range spans {
		if s.Lo < at || s.Hi < s.Lo || s.Hi > n {
			return nil, false
		}
		if s.Lo > at {
			rest = append(rest, Span{Lo: at, Hi: s.Lo})
		}
		at = s.Hi
	}
	if at < n {
		rest = append(rest, Span{Lo: at, Hi: n})
	}
	return rest, true
}

// divide gives each of k members its part of some rows. Parts differ by one row at most.
func divide(spans []Span, k int) [][]Span {
	parts, n := make([][]Span, k), Len(spans)
	for i := range parts {
		lo, hi, before := n*i/k, n*(i+1)/k, 0
		for _, s := range spans {
			from, to := max(s.Lo, s.Lo+lo-before), min(s.Hi, s.Lo+hi-before)
			if from < to {
				parts[i] = append(parts[i], Span{Lo: from, Hi: to})
			}
			before += s.Hi - s.Lo
		}
	}
	return parts
}

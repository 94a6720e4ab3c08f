package program

import (
	"fmt"
	"slices"

	"github.com/weft-project/weft/kernels"
)

// Plan is [Compile] of a program that is not to run: what it would need can be asked, but for what
// kernels work in.
func Plan(u *Unit, b kernels.Backend) *Program {
	optimizeFor(u, b)
	return &Program{unit: u, plan: lay(u, largeFor(b)), types: u.typesOf(u.Results)}
}

// largeFor is from how many bytes on values have buffers of their own.
func largeFor(b kernels.Backend) int {
	if r, ok := b.(kernels.Recorder); ok {
		return r.OwnBuffer()
	}
	return ownBuffer
}

// Made is how many bytes the results take that a run makes, where a buffer of n takes size(n).
func (p *Program) Made(size func(n int) int) (bytes int) {
	for k, n := range p.plan.bufs {
		if k >= p.plan.inputs && slices.Contains(p.plan.results, k) {
			bytes += size(n)
		}
	}
	return bytes
}

// Peak is how many bytes a run needs at most at one time, beside its first inputs, so many, with
// what its parts take while they run; other inputs are there until they are read for the last time.
// A buffer of n bytes takes size(n).
func (p *Program) Peak(beside int, size func(n int) int) (most int) {
	l := p.plan
	change := make([]int, len(l.first)+1) // by part: what begins there, less what ended before
	for k, n := range l.bufs {
		if k < beside || len(l.first) == 0 {
			continue
		}
		first, last := l.parts(k)
		if k < l.inputs {
			first = 0
		}
		if slices.Contains(l.results, k) {
			last = len(l.first) - 1
		}
		change[first] += size(n)
		change[last+1] -= size(n)
	}
	now := 0
	for n := range l.first {
		if now += change[n]; p.parts != nil {
			if scratch := p.parts[n].scratch(); scratch > 0 {
				most = max(most, now+size(scratch))
			}
		}
		most = max(most, now)
	}
	return most
}

func itself(n int) int { return n }

// Scratch is how many bytes a run's kernels work in at most.
func (p *Program) Scratch() (most int) {
	for k := range p.parts {
		most = max(most, p.parts[k].scratch())
	}
	return most
}

// scratch is how many bytes a part takes while it runs.
func (o *part) scratch() int {
	if s, ok := o.routine.(kernels.Scratcher); ok {
		return s.Scratch()
	}
	return 0
}

// memory says what a run needs.
func (p *Program) memory() string {
	of := inBytes(p.Made(itself)) + " of results"
	if scratch := p.Scratch(); scratch > 0 {
		of += ", at most " + inBytes(scratch) + " that kernels work in"
	}
	return fmt.Sprintf("memory of a run: at most %s beside its inputs, of which %s and %s in the arena",
		inBytes(p.Peak(p.plan.inputs, itself)), of, inBytes(p.plan.arena))
}

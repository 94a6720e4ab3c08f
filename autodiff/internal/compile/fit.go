package compile

import (
	"slices"

	"github.com/weft-project/weft/autodiff/internal/program"
)

// Fits says which batch would have fitted into so much memory as was free for a call, and its
// backward, and of which batch that call was; 0: not even 1. A batch is the first dimension of
// inputs that are no parameters. It is not known of a single op, nor where the body takes no other
// batch. Memory is what plans say, where a buffer of n bytes takes size(n). Kernels are said to
// work in as much as with the batch that there was, so that a little more than that may fit.
func (c *Function) Fits(free int64, size func(n int) int) (fits, had int, known bool) {
	f := fitting{c: c, size: size, forward: c.Forward.Scratch()}
	if c.spec.OneOp {
		return 0, 0, false
	}
	if c.Grads {
		p, err := c.Backward(c.All())
		if err != nil {
			return 0, 0, false
		}
		f.back = p.Program.Scratch()
	}
	for _, b := range c.spec.batches() {
		if fits, known = f.most(b, free); known {
			return fits, b.had, true
		}
	}
	return 0, 0, false
}

// All is the set of all results that have a gradient.
func (c *Function) All() (mask uint64) {
	for k, tracked := range c.Tracked {
		if tracked {
			mask |= 1 << k
		}
	}
	return mask
}

// batch is a first dimension of some inputs.
type batch struct {
	had int
	of  []int // how many times it each input has; 0: it has something else
}

// batches are what may be a call's batch, the first inputs' first. Labels may be those of all rows
// of all of a batch, so that they have it many times.
func (s Spec) batches() (all []batch) {
	for _, many := range []bool{false, true} {
		var seen []int
		for _, x := range s.In {
			if x.Param || len(x.Type.Shape) == 0 || x.Type.Shape[0] < 2 || slices.Contains(seen, x.Type.Shape[0]) {
				continue
			}
			b := batch{had: x.Type.Shape[0], of: make([]int, len(s.In))}
			seen = append(seen, b.had)
			for k, x := range s.In {
				if x.Param || len(x.Type.Shape) == 0 || x.Type.Shape[0]%b.had != 0 {
					continue
				}
				if n := x.Type.Shape[0] / b.had; n == 1 || many {
					b.of[k] = n
				}
			}
			all = append(all, b)
		}
	}
	return all[:min(len(all), mostBatches)]
}

const (
	mostBatches = 8  // that are tried
	mostPlans   = 24 // that are made to find out what fits
)

// with is the function for another batch.
func (s Spec) with(b batch, n int) Spec {
	s.In = slices.Clone(s.In)
	for k, times := range b.of {
		if times > 0 {
			s.In[k].Type.Shape = s.In[k].Type.Shape.Clone()
			s.In[k].Type.Shape[0] = times * n
		}
	}
	return s
}

// fitting is the search for a batch.
type fitting struct {
	c             *Function
	size          func(n int) int
	forward, back int // bytes that kernels work in
}

// most is the largest batch that needs no more than is free. It is not known where the body does
// not take one, or does not need less with a smaller one. A batch of one more than there was shows
// that: all that has to grow with it does, as nothing is repeated that is 1.
func (f *fitting) most(b batch, free int64) (fits int, known bool) {
	if _, _, err := f.c.spec.with(b, b.had+1).draw(); err != nil {
		return 0, false
	}
	lo, hi := 1, b.had
	atLo, err := f.need(b, lo)
	atHi, other := f.need(b, hi)
	if err != nil || other != nil || atLo >= atHi || atHi <= free {
		return 0, false
	}
	if atLo > free { // kernels may work in less with 1
		return 0, atLo-int64(f.size(f.forward)+f.size(f.back)) > free
	}
	for plans := 0; hi-lo > 1; plans++ {
		// Memory grows almost evenly with a batch. Where it does not halves are sure to end.
		mid := lo + (hi-lo)/2
		if plans < mostPlans/2 {
			mid = lo + int(float64(hi-lo)*(float64(free-atLo)/float64(atHi-atLo)))
			mid = min(max(mid, lo+1), hi-1)
		}
		at, err := f.need(b, mid)
		if err != nil || plans == mostPlans {
			return lo, err == nil
		}
		if at <= free {
			lo, atLo = mid, at
		} else {
			hi, atHi = mid, at
		}
	}
	return lo, true
}

// need is how many bytes a call with a batch, and then its backward, need at most at one time.
// Inputs are not counted: they are there. Results are somebody's until the end.
func (f *fitting) need(b batch, n int) (bytes int64, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicked("planning "+f.c.Name, r)
		}
	}()
	c, u, err := f.c.spec.with(b, n).draw()
	if err != nil {
		return 0, err
	}
	forward := program.Plan(u, c.backend).Peak(len(c.in), f.size) + f.size(f.forward)
	if !c.Grads {
		return int64(forward), nil
	}
	if u, _, err = c.drawBackward(c.All()); err != nil {
		return 0, err
	}
	back := program.Plan(u, c.backend).Peak(len(c.Reads), f.size) + f.size(f.back)
	for _, n := range c.out {
		back += f.size(c.graph.Type(n).Bytes())
	}
	return int64(max(forward, back)), nil
}

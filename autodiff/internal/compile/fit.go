package compile

import (
	"math"
	"slices"
	"sync"

	"github.com/weft-project/weft/autodiff/internal/program"
)

// Fits says which batch would have fitted into so much memory as was free for a call, and its
// backward, and of which batch that call was. A batch is the first dimension of inputs that are no
// parameters. It is not known of a single op, nor where the body takes no other batch, or two of
// its inputs' dimensions may change, or not even 1 fits. A buffer of n bytes takes size(n).
func (c *Function) Fits(free int64, size func(n int) int) (fits, had int, known bool) {
	if c.spec.OneOp {
		return 0, 0, false
	}
	a := c.sought.answer(free, func() answer { return c.seek(free, size) })
	return a.fits, a.had, a.known
}

// seek is Fits where nothing is remembered.
func (c *Function) seek(free int64, size func(n int) int) (a answer) {
	f := fitting{c: c, size: size, forward: c.Forward.Scratch()}
	if c.Grads {
		p, err := c.Backward(c.All())
		if err != nil {
			return answer{}
		}
		f.back = p.Program.Scratch()
	}
	b, ok := f.batch()
	if !ok {
		return answer{}
	}
	a.had = b.had
	a.fits, a.known = f.most(b, free)
	return a
}

// answer is what Fits has said: which batch of which would have fitted into what was free.
type answer struct {
	free      int64
	fits, had int
	known     bool
}

// sought is the last answers for a function, so that a program that tries again and again does not
// wait for plans each time.
type sought struct {
	mu  sync.Mutex
	all []answer
}

// mostSought is how many answers are looked for. After those, they have to do.
const mostSought = 4

// answer is one for about as much memory, and no more than that, or else a new one. An answer for
// less memory holds for more, but names a smaller batch than might be.
func (s *sought) answer(free int64, seek func() answer) (a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := false
	for _, old := range s.all {
		if old.free <= free && (old.free >= free-free/16 || len(s.all) == mostSought) && old.fits >= a.fits {
			a, have = old, true
		}
	}
	if !have && len(s.all) < mostSought {
		a = seek()
		a.free = free
		s.all = append(s.all, a)
	}
	return a
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

// inputs is how many inputs have it.
func (b batch) inputs() (n int) {
	for _, times := range b.of {
		n += min(times, 1)
	}
	return n
}

// batches are what may be a call's batch, that of the most inputs first. Labels may be those of all
// rows of all of a batch, so that they have it many times.
func (s Spec) batches() (all []batch) {
	for _, many := range []bool{false, true} {
		var seen []int
		from := len(all)
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
		slices.SortStableFunc(all[from:], func(a, b batch) int { return b.inputs() - a.inputs() })
	}
	return all[:min(len(all), mostBatches)]
}

const (
	mostBatches  = 8  // that are tried
	mostPlans    = 24 // that are made to find out what fits
	mostPrograms = 4  // that are compiled for it
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

// batch is the only one of a call's that works. It has to be more than one can tell apart: a frozen
// weight's first dimension may change as well as a batch.
func (f *fitting) batch() (one batch, ok bool) {
	for _, b := range f.c.spec.batches() {
		if ok && b.had == one.had || !f.works(b) {
			continue
		}
		if ok {
			return batch{}, false
		}
		one, ok = b, true
	}
	return one, ok
}

// works says whether the body takes another batch, and needs less with a smaller one. A batch of
// one more than there was shows that: all that has to grow with it does, as nothing is repeated
// that is 1.
func (f *fitting) works(b batch) bool {
	if _, _, err := f.c.spec.with(b, b.had+1).draw(); err != nil {
		return false
	}
	atLo, err := f.need(b, 1)
	atHi, other := f.need(b, b.had)
	return err == nil && other == nil && atLo < atHi
}

// most is the largest batch, or almost, that needs no more than is free, if one does.
func (f *fitting) most(b batch, free int64) (fits int, known bool) {
	lo, hi := 1, b.had
	atLo, err := f.need(b, lo)
	atHi, other := f.need(b, hi)
	if err != nil || other != nil || atHi <= free {
		return 0, false
	}
	for plans := 0; hi-lo > 1 && atLo <= free; plans++ {
		// Memory grows almost evenly with a batch. Where it does not halves are sure to end.
		mid := lo + (hi-lo)/2
		if plans < mostPlans/2 {
			mid = lo + int(float64(hi-lo)*(float64(free-atLo)/float64(atHi-atLo)))
			mid = min(max(mid, lo+1), hi-1)
		}
		at, err := f.need(b, mid)
		if err != nil {
			return 0, false
		}
		if plans == mostPlans {
			break
		}
		if at <= free {
			lo, atLo = mid, at
		} else {
			hi, atHi = mid, at
		}
	}
	return f.settle(b, lo, free)
}

// settle is a batch that fits by its programs, which know what their kernels work in. It begins
// with n, that fits but for that.
func (f *fitting) settle(b batch, n int, free int64) (fits int, known bool) {
	hi := b.had
	for range mostPrograms {
		at, err := f.exact(b, n)
		if err != nil {
			break
		}
		next := int(float64(n) * (float64(free) / float64(max(at, 1))))
		if at <= free {
			fits = n
		} else {
			hi, next = n, next*7/8 // not all of it shrinks with the batch
		}
		if n = min(max(next, 1), hi-1); n <= fits {
			break
		}
	}
	return fits, fits > 0
}

// exact is need by programs.
func (f *fitting) exact(b batch, n int) (bytes int64, err error) {
	c, err := New(f.c.spec.with(b, n))
	if err != nil {
		return 0, err
	}
	forward := c.Forward.Peak(len(c.in), f.size)
	if !c.Grads {
		return int64(forward), nil
	}
	p, err := c.Backward(c.All())
	if err != nil {
		return 0, err
	}
	return int64(max(forward, p.Program.Peak(len(c.Reads), f.size)+c.results(f.size))), nil
}

// results is how many bytes the function's results take.
func (c *Function) results(size func(n int) int) (bytes int) {
	for _, n := range c.out {
		bytes += size(c.graph.Type(n).Bytes())
	}
	return bytes
}

// need is how many bytes a call with a batch, and then its backward, need at most at one time.
// Inputs are not counted: they are there. Results are somebody's until the end. What kernels work
// in is taken to grow with the batch.
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
	forward := program.Plan(u, c.backend).Peak(len(c.in), f.size) + f.work(f.forward, b, n)
	if !c.Grads {
		return int64(forward), nil
	}
	if u, _, err = c.drawBackward(c.All()); err != nil {
		return 0, err
	}
	back := program.Plan(u, c.backend).Peak(len(c.Reads), f.size) + f.work(f.back, b, n) + c.results(f.size)
	return int64(max(forward, back)), nil
}

// work is the share of a smaller batch in what kernels work in.
func (f *fitting) work(scratch int, b batch, n int) int {
	if scratch == 0 {
		return 0
	}
	return f.size(int(math.Ceil(float64(scratch) * float64(n) / float64(b.had))))
}

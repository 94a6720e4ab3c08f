package gpu

import (
	"fmt"
	"math"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/kernels"
)

// lowerOptim is lower for what optimizers do.
func (b *backend) lowerOptim(i kernels.Instr, in, out []kernels.Type) (*code, error) {
	switch i := i.(type) {
	case kernels.Update:
		return b.update(i, in)
	case kernels.UpdateMany:
		return b.update(i.Of, in)
	case kernels.OnRows:
		return b.onRows(i, in, out)
	}
	return nil, unknown(i)
}

// The rules and flags, as optim.cu numbers them.
const (
	ruleSGD = iota
	ruleMomentum
	ruleAdam
	ruleAdagrad
	ruleAdadelta
	ruleRMSprop
	ruleRprop
	ruleAdamax
)

const (
	flagNesterov = 1 << iota
	flagCentered
	flagMoving
	flagEpsFirst
)

// step is a rule and its numbers: optim.cu's Step, and its Count.
type step struct {
	rule, flags                                             int
	scale, decay, lr, b1, r1, b2, r2, eps, correct, keepAll float64
	of                                                      kernels.Update
}

// stepOf has the numbers that the host's loops have.
func stepOf(i kernels.Update) step {
	r := i.Rates(i.Step)
	s := step{scale: i.Scale, decay: i.WeightDecay, lr: r.LR, b1: i.Beta1, r1: 1 - i.Beta1, b2: i.Beta2, r2: 1 - i.Beta2, eps: r.Eps, correct: r.Correct, keepAll: 1, of: i}
	if i.Scale == 0 {
		s.scale = 1
	}
	if i.Nesterov {
		s.flags |= flagNesterov
	}
	if i.EpsFirst {
		s.flags |= flagEpsFirst
	}
	switch i.Rule {
	case kernels.SGD:
		if i.Momentum == 0 {
			break
		}
		s.rule, s.b1, s.r1 = ruleMomentum, i.Momentum, r.Rest
	case kernels.Adam, kernels.AdamW:
		s.rule = ruleAdam
		if i.Rule == kernels.AdamW {
			s.decay, s.keepAll = 0, 1-i.LR*i.WeightDecay
		}
	case kernels.Adagrad:
		s.rule = ruleAdagrad
	case kernels.Adadelta:
		s.rule = ruleAdadelta
	case kernels.RMSprop:
		s.rule, s.b1 = ruleRMSprop, i.Momentum
		if i.Centered {
			s.flags |= flagCentered
		}
		if i.Momentum != 0 {
			s.flags |= flagMoving
		}
	case kernels.Rprop:
		s.rule, s.decay, s.b1, s.b2, s.r1, s.r2 = ruleRprop, 0, i.EtaMinus, i.EtaPlus, i.MinStep, i.MaxStep
	case kernels.Adamax:
		s.rule = ruleAdamax
	}
	return s
}

// addStep adds the argument.
func (l *launch) addStep(d device.Dtype, s step) *launch {
	l.u32(s.rule).u32(s.flags)
	for _, v := range []float64{s.scale, s.decay, s.lr, s.b1, s.r1, s.b2, s.r2, s.eps, s.correct, s.keepAll} {
		l.float(d, v)
	}
	l.u64(uint64(s.of.Step))
	for _, v := range []float64{s.of.LR, s.of.Beta1, s.of.Beta2, s.of.Eps, s.of.LRDecay, 1 - s.of.Dampening} {
		l.float(device.Float64, v)
	}
	return l
}

// What one launch of an update can take: optim.cu's Tensors.
const (
	updateWords  = 440
	updateFirsts = 74
	updateBytes  = 256 * 4 * 16 // of each tensor, to a block
)

// update steps parameters by one rule, as many as fit by each launch.
func (b *backend) update(i kernels.Update, in []kernels.Type) (*code, error) {
	c, d, s, slots := new(code), in[0].Dtype, stepOf(i), len(i.Slots())
	f, err := b.kernel("optim", typed("update", d), 0)
	if err != nil {
		return nil, err
	}
	nin, nout := i.Width()
	words := 6 + 2*slots
	most := min(updateWords/words, updateFirsts-1)
	params := len(in) / nin
	for from := 0; from < params; from += most {
		to := min(from+most, params)
		l, first := c.call(f, 0, 256), [updateFirsts]int{}
		l.args = make([]arg, 0, updateWords+updateFirsts+15)
		for k := from; k < to; k++ {
			t := in[k*nin]
			first[k-from] = int(l.grid[0])
			blocks := (t.Bytes() + updateBytes - 1) / updateBytes
			if i.Missed { // one counts
				blocks = max(blocks, 1)
			}
			l.grid[0] += uint32(blocks)
			l.u64(uint64(t.Shape.Elems()))
			for n := range nin {
				l.in(k*nin + n)
			}
			if !i.Missed {
				l.u64(0)
			}
			for n := range nout {
				l.out(k*nout + n)
				c.old = append(c.old, k*nin+kernels.Replaced(n))
			}
			if !i.Missed {
				l.u64(0)
			}
		}
		for range updateWords - words*(to-from) {
			l.u64(0)
		}
		for _, block := range first {
			l.u32(block)
		}
		l.u32(to-from).u32(slots).addStep(d, s).heed()
	}
	return c, nil
}

// binaries are the functions that rows_binary has, as optim.cu numbers them.
var binaries = [...]kernels.BinaryFn{kernels.Add, kernels.Sub, kernels.Mul, kernels.Div, kernels.Maximum, kernels.Minimum}

// onRows orders the ids, and updates the row of each by a group of threads.
func (b *backend) onRows(i kernels.OnRows, in, out []kernels.Type) (*code, error) {
	c, d, last := new(code), in[0].Dtype, len(in)-1
	if err := countable(i, in); err != nil {
		return nil, err
	}
	rows, count, n := in[0].Shape[0], in[last].Shape[0], in[0].Shape[1:].Elems()
	move, err := b.kernel("rows", "copy", 0)
	if err != nil {
		return nil, err
	}
	for k, t := range out {
		from := kernels.Replaced(k)
		c.old = append(c.old, from)
		c.words(move, t.Bytes()).out(k).in(from).u64(uint64(t.Bytes() / 4))
	}
	keys, err := b.sort(c, last, in[last], rows)
	u, isUpdate := i.Of.(kernels.Update)
	if err != nil || (count == 0 || n == 0) && !u.Missed { // one thread counts, also of no rows
		return c, err
	}
	p := planRows(d, max(count, 1), n, 4, 256)
	if !isUpdate {
		c.old = nil
		return b.onRowsBinary(c, i, p, d, keys, rows)
	}
	f, err := b.kernel("optim", typed("rows_update", d), 0)
	if err != nil {
		return nil, err
	}
	l := p.launch(c, f)
	tables := len(i.Tables(in)) - 1
	for k := range 4 {
		if k < tables {
			l.out(k)
		} else {
			l.u64(0)
		}
	}
	if l.in(1); count > 0 {
		l.temp(keys)
	} else {
		l.u64(0)
	}
	if u.Missed {
		l.out(tables)
	} else {
		l.u64(0)
	}
	l.u32(count).u32(n).u32(tables-1).u32(p.lanes).flag(i.Sum).u64(uint64(rows)).addStep(d, stepOf(u)).heed()
	return c, nil
}

func (b *backend) onRowsBinary(c *code, i kernels.OnRows, p rowPlan, d device.Dtype, keys, rows int) (*code, error) {
	for fn, known := range binaries {
		if i.Of == (kernels.Binary{Fn: known}) {
			f, err := b.kernel("optim", typed("rows_binary", d), 0)
			if err != nil {
				return nil, err
			}
			p.launch(c, f).out(0).in(1).temp(keys).u32(p.rows).u32(p.n).u32(p.lanes).u64(uint64(rows)).u32(fn).heed()
			return c, nil
		}
	}
	return nil, unknown(i)
}

// countable refuses what kernels cannot count in 32 bits.
func countable(i kernels.Instr, in []kernels.Type) error {
	for _, t := range in {
		if t.Shape.Elems() > math.MaxInt32 {
			return fmt.Errorf("%w: %v of 2³¹ elements or more", kernels.ErrNoBackend, i)
		}
	}
	return nil
}

// spread is how many blocks of 256 threads go through as many bytes, 64 to a thread, or more where
// there would be very many.
func spread(bytes int) int { return min((bytes+256*64-1)/(256*64), 2048) }

// words begins a launch over memory.
func (c *code) words(f cuda.Func, bytes int) *launch { return c.call(f, spread(bytes), 256) }

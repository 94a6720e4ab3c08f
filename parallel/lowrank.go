package parallel

import (
	"context"
	"math"
	"math/rand/v2"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/vec"
	"github.com/weft-project/weft/parallel/internal/host"
)

// LowRank has gradients of large matrices travel as the product of two thin ones, P·Qᵀ: PowerSGD
// (Vogels, Karimireddy and Jaggi, 2019, arXiv:1905.13727). What this leaves out is added to the
// gradient of the next step, and Q begins with that of the step before.
//
// It is for parameters of float32 with n rows and m columns (all axes but the first), where
// (n+m)·Rank·2 < n·m; all others travel as [Config.Wire] says. It costs some 6·Rank operations an
// element, and memory like one gradient more.
type LowRank struct {
	Rank int    // of the matrices; 0: none
	From uint64 // steps before this one are exact: gradients are most unlike one another then
}

// mostRank bounds LowRank.Rank.
const mostRank = 1 << 10

// factors are a parameter's low-rank gradient: P of n·rank, by columns, and Q of m·rank.
type factors struct {
	n, m, rank int
	q          []float32 // of the last step
	lost       []float32 // what was left out of the last step; n·m

	src          *rand.Rand // the same on all ranks
	nextQ, nextL []float32  // of a step that has not ended
	pending      bool
}

// lowRank is how parameter i travels as thin matrices, nil where it does not.
func (r *Replicas) lowRank(i int) *factors {
	l, t := r.config.LowRank, r.params[i].Type()
	if l.Rank == 0 || r.steps < l.From || t.Dtype != device.Float32 || len(t.Shape) < 2 {
		return nil
	}
	n := t.Shape[0]
	m := t.Shape.Elems() / max(n, 1)
	if (n+m)*l.Rank*2 >= n*m {
		return nil
	}
	if r.lows[i] == nil {
		r.lows[i] = newFactors(n, m, l.Rank, uint64(i))
	}
	return r.lows[i]
}

func newFactors(n, m, rank int, seed uint64) *factors {
	f := &factors{n: n, m: m, rank: rank, src: rand.New(rand.NewPCG(seed, 0x10f0))}
	f.q, f.lost, f.nextL = make([]float32, m*rank), make([]float32, n*m), make([]float32, n*m)
	for k := range rank {
		f.draw(f.q[k*m:][:m])
	}
	return f
}

func (f *factors) draw(column []float32) {
	for j := range column {
		column[j] = float32(f.src.NormFloat64())
	}
}

// lowRank makes the sum of all ranks' gradients, but for what the rank leaves out.
func (l *load) lowRank(c context.Context, g *collective.Group) (*device.Buffer, error) {
	f := l.low
	own, err := owned(l.in)
	if err != nil {
		g.Abandon(c, err)
		g.Abandon(c, err)
		return nil, err
	}
	mem, err := own.Host()
	x := device.As[float32](mem)
	if err == nil {
		err = f.exchange(x, func(v []float32) error { return collective.AllReduce(c, g, v, collective.Sum) }, func(why error) { g.Abandon(c, why) })
	}
	if err != nil {
		host.Release(own)
		return nil, err
	}
	return own, nil
}

// exchange replaces x by the low-rank sum. It calls sum twice, or skip.
func (f *factors) exchange(x []float32, sum func(v []float32) error, skip func(why error)) error {
	loops := vec.Best[float32]()
	loops.Add(f.nextL, f.lost, x)
	p := f.project(f.nextL)
	if err := sum(p); err != nil {
		skip(err)
		return err
	}
	orthonormalise(p, f.n, f.rank)
	own := f.back(f.nextL, p)
	f.nextQ = append(f.nextQ[:0], own...)
	if err := sum(f.nextQ); err != nil {
		return err
	}
	f.multiply(x, f.nextL, p, own)
	f.pending = true
	return nil
}

// project is M·Q.
func (f *factors) project(matrix []float32) []float32 {
	loops, p := vec.Best[float32](), make([]float32, f.n*f.rank)
	for i := range f.n {
		row := matrix[i*f.m:][:f.m]
		for k := range f.rank {
			p[k*f.n+i] = float32(loops.Dot(row, f.q[k*f.m:][:f.m]))
		}
	}
	return p
}

// back is Mᵀ·P.
func (f *factors) back(matrix, p []float32) []float32 {
	loops, q := vec.Best[float32](), make([]float32, f.m*f.rank)
	for i := range f.n {
		row := matrix[i*f.m:][:f.m]
		for k := range f.rank {
			to := q[k*f.m:][:f.m]
			loops.AddScaled(to, to, row, p[k*f.n+i])
		}
	}
	return q
}

// multiply makes P·Qᵀ of the sums, to the same bits on every processor, and leaves of the matrix
// what P and this rank's own Q do not have.
func (f *factors) multiply(out, matrix, p, own []float32) {
	loops, part := vec.Best[float32](), make([]float32, f.m)
	for i := range f.n {
		to, left := out[i*f.m:][:f.m], matrix[i*f.m:][:f.m]
		for k := range f.rank {
			at := p[k*f.n+i]
			loops.AddScaled(left, left, own[k*f.m:][:f.m], -at)
			if k == 0 {
				loops.Scale(to, f.nextQ[:f.m], at)
				continue
			}
			loops.Scale(part, f.nextQ[k*f.m:][:f.m], at) // rounded before it is added
			loops.Add(to, to, part)
		}
	}
}

// settle keeps what a step has left out, where it went well.
func (f *factors) settle(well bool) {
	if f.pending && well {
		f.q, f.nextQ = f.nextQ, f.q
		f.lost, f.nextL = f.nextL, f.lost
		for k := range f.rank {
			if column := f.q[k*f.m:][:f.m]; zero(column) { // gradients had a lower rank: look elsewhere
				f.draw(column)
			}
		}
	}
	f.pending = false
}

func zero(x []float32) bool {
	for _, v := range x {
		if v != 0 {
			return false
		}
	}
	return true
}

// orthonormalise makes columns of length 1 that are at right angles (Gram-Schmidt, twice), to the
// same bits on every processor: conversions keep a product and a sum apart. One that depends on
// those before it becomes zero.
func orthonormalise(p []float32, n, rank int) {
	dot := func(a, b []float32) (sum float64) {
		for i, v := range a {
			sum += float64(float64(v) * float64(b[i]))
		}
		return sum
	}
	for k := range rank {
		column := p[k*n:][:n]
		before := math.Sqrt(dot(column, column))
		for range 2 {
			for other := range k {
				from := p[other*n:][:n]
				along := dot(column, from)
				for i, v := range from {
					column[i] -= float32(float64(along * float64(v)))
				}
			}
		}
		length := math.Sqrt(dot(column, column))
		if !(length > 1e-6*before) {
			clear(column)
			continue
		}
		for i, v := range column {
			column[i] = float32(float64(v) / length)
		}
	}
}

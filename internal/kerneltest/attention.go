package kerneltest

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// attention draws attention or its gradient, whose operands are such as attention gives.
func (g gen) attention(d device.Dtype, grad bool) (kernels.Instr, []Tensor) {
	of, joined := g.attending(), grad && g.chance(0.4)
	b, t, heads, e := g.IntN(3), g.extent(), g.IntN(4), g.IntN(9)
	if g.chance(0.1) {
		b, heads, t = 1, 1, 30+g.IntN(80) // several blocks of rows
	}
	s, keys := t, heads
	if !joined {
		s = g.extent()
		if of.Causal {
			s += t
		}
	}
	if g.chance(0.3) {
		heads *= 1 + g.IntN(3)
	}
	q, k := device.Shape{b, t, heads, e}, device.Shape{b, s, keys, e}
	in := []Tensor{g.tensor(d, q), g.tensor(d, k), g.tensor(d, k)}
	more := g.beside(of, in)
	if !grad {
		return of, append(in, more...)
	}
	return GradOf(of, joined), append(append(append(in, attended(of, append(in[:3:3], more...))...), g.tensor(d, q)), more...)
}

// attending draws what attention does, often nothing besides.
func (g gen) attending() (of kernels.Attention) {
	of.Causal, of.Masked = g.chance(0.5), g.chance(0.3)
	if g.chance(0.3) {
		of.Drop = []float64{0.1, 0.5, g.Float64(), 1}[g.IntN(4)]
	}
	return of
}

// GradOf is the gradient of attention.
func GradOf(of kernels.Attention, joined bool) kernels.AttentionGrad {
	return kernels.AttentionGrad{Causal: of.Causal, Masked: of.Masked, Drop: of.Drop, Joined: joined}
}

// Beside draws the mask and the key that attention takes beside queries, keys and values.
func Beside(r *rand.Rand, of kernels.Attention, in []Tensor) []Tensor {
	return gen{Rand: r}.beside(of, in)
}

// beside draws masks that hide some keys, and some queries.
func (g gen) beside(of kernels.Attention, in []Tensor) (more []Tensor) {
	if of.Masked {
		q, k := in[0].Shape, in[1].Shape
		shape := device.Shape{q[0], q[2], q[1], k[1]}
		for n := range shape {
			if g.chance(0.4) {
				shape[n] = 1
			}
		}
		m := g.tensor(in[0].Dtype, shape)
		hides, blind, row := 0.2*g.Float64(), 0.2*g.Float64(), false
		for n := range m.V {
			if n%shape[3] == 0 {
				row = g.chance(blind)
			}
			if row || g.chance(hides) {
				m.V[n] = math.Inf(-1)
			}
		}
		more = append(more, m)
	}
	if of.Drop != 0 {
		more = append(more, g.key())
	}
	return more
}

// attended is what attention gives of some operands, rounded.
func attended(of kernels.Attention, in []Tensor) []Tensor {
	out, err := of.Infer(types(in))
	if err != nil {
		panic(err)
	}
	made := attention(of, in, out)
	for n := range made {
		for k, v := range made[n].V {
			made[n].V[k] = round(out[n].Dtype, v)
		}
	}
	return made
}

// viewedAttention draws views of all operands of attention or its gradient, but the key; what
// attention gave is of what the views show.
func (g gen) viewedAttention(d device.Dtype) (kernels.Instr, []Tensor) {
	of, in := g.attention(d, g.chance(0.5))
	last := len(in) - 1
	key := in[last]
	i, in := g.viewed(of, in)
	if key.Dtype == device.Int64 {
		i.In[last], in[last] = nil, key
	}
	if grad, ok := of.(kernels.AttentionGrad); ok {
		i.In[3], i.In[4] = nil, nil
		seen := seenThrough(i.In, in)
		copy(in[3:], attended(grad.Of(), append(seen[:3:3], seen[6:]...)))
	}
	return i, in
}

// looked is attention's operands: the mask and the key are nil where there are none.
type looked struct {
	of        kernels.Attention
	q, k, v   Tensor
	mask, key *Tensor
}

func lookedAt(of kernels.Attention, in, more []Tensor) looked {
	l := looked{of: of, q: in[0], k: in[1], v: in[2]}
	if of.Masked {
		l.mask, more = &more[0], more[1:]
	}
	if of.Drop != 0 {
		l.key = &more[0]
	}
	return l
}

// keyHead is the head of keys and values that a head of queries has.
func (l looked) keyHead(head int) int { return head / (l.q.Shape[2] / l.k.Shape[2]) }

// looks is the probabilities of one row of queries over the keys that it sees, which are the first,
// and by what the weight of each is multiplied. Also the logarithm of the sum of exponentials.
//
//go:norace
func (l looked) looks(b, row, head int) (p, kept []float64, sum float64) {
	d, seen := l.q.Shape[3], l.k.Shape[1]
	wide := (seen + 3) / 4 * 4
	if l.of.Causal {
		seen += row + 1 - l.q.Shape[1]
	}
	p, kept = make([]float64, seen), make([]float64, seen)
	m := math.Inf(-1)
	for j := range seen {
		for e := range d {
			p[j] += l.q.at([]int{b, row, head, e}) * l.k.at([]int{b, j, l.keyHead(head), e}) / math.Sqrt(float64(d))
		}
		if l.mask != nil {
			p[j] += l.mask.at([]int{b, head, row, j})
		}
		m = max(m, p[j])
		kept[j] = 1
		if l.key != nil {
			at := ((b*l.q.Shape[2]+head)*l.q.Shape[1]+row)*wide + j
			kept[j] = draw(kernels.Random{Fn: kernels.Bernoulli, P: 1 - l.of.Drop}, *l.key, at) / max(1-l.of.Drop, 1e-300)
		}
	}
	if l.mask != nil && math.IsInf(m, -1) {
		return make([]float64, seen), kept, m
	}
	for _, v := range p {
		sum += math.Exp(v - m)
	}
	sum = m + math.Log(sum)
	for j := range p {
		p[j] = math.Exp(p[j] - sum)
	}
	return p, kept, sum
}

// eachQuery calls fn for every row of queries of every head.
func eachQuery(q device.Shape, fn func(b, row, head int)) {
	for b := range q[0] {
		for row := range q[1] {
			for head := range q[2] {
				fn(b, row, head)
			}
		}
	}
}

// add adds to one element of a tensor without broadcasting.
//
//go:norace
func (t Tensor) add(v float64, idx ...int) {
	flat := 0
	for k, n := range t.Shape {
		flat = flat*n + idx[k]
	}
	t.V[flat] += v
}

func zeros(t kernels.Type) Tensor { return Tensor{t, make([]float64, t.Shape.Elems())} }

//go:norace
func attention(of kernels.Attention, in []Tensor, out []kernels.Type) []Tensor {
	y, sums, l := zeros(out[0]), zeros(out[1]), lookedAt(of, in, in[3:])
	eachQuery(y.Shape, func(b, row, head int) {
		p, kept, sum := l.looks(b, row, head)
		sums.add(sum, b, head, row)
		for j, w := range p {
			for e := range y.Shape[3] {
				y.add(w*kept[j]*l.v.at([]int{b, j, l.keyHead(head), e}), b, row, head, e)
			}
		}
	})
	return []Tensor{y, sums}
}

// attentionGrad takes the Jacobian of the softmax element by element; it reads neither y nor the
// logarithms.
//
//go:norace
func attentionGrad(i kernels.AttentionGrad, in []Tensor, out []kernels.Type) []Tensor {
	l, gy := lookedAt(i.Of(), in, in[6:]), in[5]
	heads, keys, d := l.q.Shape[2], l.k.Shape[2], l.q.Shape[3]
	gq, ofK, ofV := zeros(out[0]), 0, 0
	gk, gv := gq, gq
	if i.Joined {
		ofK, ofV = heads, heads+keys
	} else {
		gk, gv = zeros(out[1]), zeros(out[2])
	}
	eachQuery(l.q.Shape, func(b, row, head int) {
		p, kept, _ := l.looks(b, row, head)
		gp, key := make([]float64, len(p)), l.keyHead(head)
		for j := range p {
			for e := range d {
				g := gy.at([]int{b, row, head, e}) * kept[j]
				gp[j] += g * l.v.at([]int{b, j, key, e})
				gv.add(p[j]*g, b, j, ofV+key, e)
			}
		}
		for j, gs := range softmaxGrad(p, gp, false) {
			gs /= math.Sqrt(float64(d))
			for e := range d {
				gq.add(gs*l.k.at([]int{b, j, key, e}), b, row, head, e)
				gk.add(gs*l.q.at([]int{b, row, head, e}), b, j, ofK+key, e)
			}
		}
	})
	if i.Joined {
		return []Tensor{gq}
	}
	return []Tensor{gq, gk, gv}
}

// CheckAttention draws operands of attention and of its gradient, with queries and keys of some
// shapes, and compares both with their definitions.
func CheckAttention(t testing.TB, on device.Device, r *rand.Rand, of kernels.Attention, d device.Dtype, q, k device.Shape) {
	t.Helper()
	g := gen{Rand: r}
	in := []Tensor{g.tensor(d, q), g.tensor(d, k), g.tensor(d, k)}
	more := g.beside(of, in)
	all := append(in[:3:3], more...)
	Check(t, on, of, all...)
	back := append(append(append(in[:3:3], attended(of, all)...), g.tensor(d, q)), more...)
	Check(t, on, GradOf(of, false), back...)
	if q[1] == k[1] {
		Check(t, on, GradOf(of, true), back...)
	}
}

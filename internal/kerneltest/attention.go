package kerneltest

import (
	"math"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// attention draws attention or its gradient, whose operands are such as attention gives.
func (g gen) attention(d device.Dtype, grad bool) (kernels.Instr, []Tensor) {
	causal, joined := g.chance(0.5), grad && g.chance(0.4)
	b, t, heads, e := g.IntN(3), g.extent(), g.IntN(4), g.IntN(9)
	if g.chance(0.1) {
		b, heads, t = 1, 1, 30+g.IntN(80) // several blocks of rows
	}
	s := t
	if !joined {
		s = g.extent()
		if causal {
			s += t
		}
	}
	q, k := device.Shape{b, t, heads, e}, device.Shape{b, s, heads, e}
	in := []Tensor{g.tensor(d, q), g.tensor(d, k), g.tensor(d, k)}
	of := kernels.Attention{Causal: causal}
	if !grad {
		return of, in
	}
	return kernels.AttentionGrad{Causal: causal, Joined: joined}, append(append(in, attended(causal, in)...), g.tensor(d, q))
}

// attended is what attention gives of some operands, rounded.
func attended(causal bool, in []Tensor) []Tensor {
	out, err := kernels.Attention{Causal: causal}.Infer(types(in))
	if err != nil {
		panic(err)
	}
	made := attention(causal, in, out)
	for n := range made {
		for k, v := range made[n].V {
			made[n].V[k] = round(out[n].Dtype, v)
		}
	}
	return made
}

// viewedAttention draws views of all operands of attention or its gradient; what attention gave is
// of what the views show.
func (g gen) viewedAttention(d device.Dtype) (kernels.Instr, []Tensor) {
	of, in := g.attention(d, g.chance(0.5))
	i, in := g.viewed(of, in)
	if grad, ok := of.(kernels.AttentionGrad); ok {
		i.In[3], i.In[4] = nil, nil
		copy(in[3:], attended(grad.Causal, seenThrough(i.In[:3], in[:3])))
	}
	return i, in
}

// looks is the probabilities of one row of queries over the keys that it sees, which are the first.
// Also the logarithm of the sum of exponentials.
//
//go:norace
func looks(causal bool, q, k Tensor, b, row, head int) (p []float64, sum float64) {
	d, seen := q.Shape[3], k.Shape[1]
	if causal {
		seen += row + 1 - q.Shape[1]
	}
	p = make([]float64, seen)
	for j := range seen {
		for e := range d {
			p[j] += q.at([]int{b, row, head, e}) * k.at([]int{b, j, head, e}) / math.Sqrt(float64(d))
		}
	}
	m := math.Inf(-1)
	for _, v := range p {
		m = max(m, v)
	}
	for _, v := range p {
		sum += math.Exp(v - m)
	}
	sum = m + math.Log(sum)
	for j := range p {
		p[j] = math.Exp(p[j] - sum)
	}
	return p, sum
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
func attention(causal bool, in []Tensor, out []kernels.Type) []Tensor {
	y, sums := zeros(out[0]), zeros(out[1])
	eachQuery(y.Shape, func(b, row, head int) {
		p, sum := looks(causal, in[0], in[1], b, row, head)
		sums.add(sum, b, head, row)
		for j, w := range p {
			for e := range y.Shape[3] {
				y.add(w*in[2].at([]int{b, j, head, e}), b, row, head, e)
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
	q, k, v, gy := in[0], in[1], in[2], in[5]
	heads, d := q.Shape[2], q.Shape[3]
	gq, gk, gv := zeros(out[0]), zeros(out[0]), zeros(out[0])
	ofK, ofV := 0, 0
	if i.Joined {
		gk, gv, ofK, ofV = gq, gq, heads, 2*heads
	} else {
		gk, gv = zeros(out[1]), zeros(out[2])
	}
	eachQuery(q.Shape, func(b, row, head int) {
		p, _ := looks(i.Causal, q, k, b, row, head)
		gp := make([]float64, len(p))
		for j := range p {
			for e := range d {
				g := gy.at([]int{b, row, head, e})
				gp[j] += g * v.at([]int{b, j, head, e})
				gv.add(p[j]*g, b, j, ofV+head, e)
			}
		}
		for j := range p {
			gs := softmaxGrad(p, gp, j, false) / math.Sqrt(float64(d))
			for e := range d {
				gq.add(gs*k.at([]int{b, j, head, e}), b, row, head, e)
				gk.add(gs*q.at([]int{b, row, head, e}), b, j, ofK+head, e)
			}
		}
	})
	if i.Joined {
		return []Tensor{gq}
	}
	return []Tensor{gq, gk, gv}
}

package main

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/examples/internal/table"
)

// reference is the same network written out in plain Go, in float64: no graphs, no tape, no
// library.
type reference struct {
	widths []int
	w, b   [][]float64 // per layer: weights (in, out) row-major, biases
	vw, vb [][]float64 // velocities
}

// newReference takes the first weights from the model's own initialisers; everything after is its
// own.
func newReference(t *testing.T, s sizes) *reference {
	r := &reference{widths: []int{s.Features}}
	params := append(newHead(s).Params(), newTail(s).Params()...)
	for i, p := range params {
		v, err := autodiff.Values[float32](p)
		require.NoError(t, err)
		wide := make([]float64, len(v))
		for j := range v {
			wide[j] = float64(v[j])
		}
		if i%2 == 0 {
			r.w, r.vw = append(r.w, wide), append(r.vw, make([]float64, len(v)))
		} else {
			r.b, r.vb = append(r.b, wide), append(r.vb, make([]float64, len(v)))
			r.widths = append(r.widths, len(v))
		}
	}
	return r
}

// step is forward, cross-entropy, backward and SGD with momentum and weight decay, by hand.
func (r *reference) step(x [][]float32, y []int32, lr float64) float64 {
	n, layers := len(x), len(r.w)
	acts := make([][][]float64, layers+1) // layer → row → unit
	for _, row := range x {
		in := make([]float64, len(row))
		for j, v := range row {
			in[j] = float64(v)
		}
		acts[0] = append(acts[0], in)
	}
	for l := range layers {
		for _, in := range acts[l] {
			out := append([]float64{}, r.b[l]...)
			for i, v := range in {
				for j := range out {
					out[j] += v * r.w[l][i*len(out)+j]
				}
			}
			if l < layers-1 {
				for j := range out {
					out[j] = max(out[j], 0)
				}
			}
			acts[l+1] = append(acts[l+1], out)
		}
	}
	loss := 0.0
	delta := make([][]float64, n)
	for i, z := range acts[layers] {
		top, sum := math.Inf(-1), 0.0
		for _, v := range z {
			top = max(top, v)
		}
		for _, v := range z {
			sum += math.Exp(v - top)
		}
		loss += (math.Log(sum) + top - z[y[i]]) / float64(n)
		delta[i] = make([]float64, len(z))
		for j, v := range z {
			delta[i][j] = math.Exp(v-top) / sum / float64(n)
		}
		delta[i][y[i]] -= 1 / float64(n)
	}
	for l := layers - 1; l >= 0; l-- {
		delta = r.layerBack(l, acts[l], delta, lr)
	}
	return loss
}

// layerBack steps one layer and gives the deltas of the layer below.
func (r *reference) layerBack(l int, in, delta [][]float64, lr float64) [][]float64 {
	outs := r.widths[l+1]
	gw, gb := make([]float64, len(r.w[l])), make([]float64, outs)
	below := make([][]float64, len(in))
	for row := range in {
		below[row] = make([]float64, len(in[row]))
		for j, d := range delta[row] {
			gb[j] += d
			for i, v := range in[row] {
				gw[i*outs+j] += v * d
				if v > 0 || l == 0 {
					below[row][i] += r.w[l][i*outs+j] * d
				}
			}
		}
	}
	update := func(p, v, g []float64) {
		for i := range p {
			v[i] = momentum*v[i] + g[i] + decay*p[i]
			p[i] -= lr * v[i]
		}
	}
	update(r.w[l], r.vw[l], gw)
	update(r.b[l], r.vb[l], gb)
	return below
}

// losses trains on the batches that the program would take.
func (r *reference) losses(d *table.Data, s settings) []float64 {
	order := rand.New(rand.NewPCG(s.seed, 4)).Perm(len(d.Train.Y))
	var out []float64
	for at := 0; at+s.batch <= len(order) && len(out) < s.maxSteps; at += s.batch {
		var x [][]float32
		var y []int32
		for _, i := range order[at : at+s.batch] {
			x, y = append(x, d.Train.X[i]), append(y, d.Train.Y[i])
		}
		out = append(out, r.step(x, y, s.lr))
	}
	return out
}

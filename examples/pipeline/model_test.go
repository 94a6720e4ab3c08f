package main

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
)

var tiny = sizes{Vocab: 11, Context: 5, Width: 8, Heads: 2, Blocks: []int{1, 1}, Seed: 3}

// rows is a matrix in float64, to compute with by definition.
type rows [][]float64

func read(t *testing.T, p *autodiff.Tensor) rows {
	v, err := autodiff.Values[float32](p)
	require.NoError(t, err)
	width := p.Shape()[len(p.Shape())-1]
	var m rows
	for at := 0; at < len(v); at += width {
		row := make([]float64, width)
		for i := range row {
			row[i] = float64(v[at+i])
		}
		m = append(m, row)
	}
	return m
}

func (m rows) linear(w, b rows) rows {
	var out rows
	for _, r := range m {
		o := append([]float64{}, b[0]...)
		for i, x := range r {
			for j := range o {
				o[j] += x * w[i][j]
			}
		}
		out = append(out, o)
	}
	return out
}

func (m rows) norm(gamma, beta rows) rows {
	var out rows
	for _, r := range m {
		mean, square := 0.0, 0.0
		for _, x := range r {
			mean += x / float64(len(r))
		}
		for _, x := range r {
			square += (x - mean) * (x - mean) / float64(len(r))
		}
		var o []float64
		for i, x := range r {
			o = append(o, (x-mean)/math.Sqrt(square+epsilon)*gamma[0][i]+beta[0][i])
		}
		out = append(out, o)
	}
	return out
}

func (m rows) add(n rows) rows {
	for i := range m {
		for j := range m[i] {
			m[i][j] += n[i][j]
		}
	}
	return m
}

// reference is the logits of one window by the definition of the model: no graphs, no batches, no
// mask.
func reference(t *testing.T, l *layers, heads int, ids []int32) rows {
	tokens, positions := read(t, l.embedding[0]), read(t, l.embedding[1])
	var x rows
	for i, id := range ids {
		x = append(x, append([]float64{}, tokens[id]...))
		for j := range x[i] {
			x[i][j] += positions[i][j]
		}
	}
	for _, b := range l.blocks {
		var p []rows
		for _, t2 := range b {
			p = append(p, read(t, t2))
		}
		n := x.norm(p[0], p[1])
		q, k, v := n.linear(p[2], p[3]), n.linear(p[4], p[5]), n.linear(p[6], p[7])
		d := len(x[0]) / heads
		var seen rows
		for i := range x {
			row := make([]float64, len(x[0]))
			for h := range heads {
				var weights []float64
				sum := 0.0
				for j := range i + 1 { // itself and what is before it
					dot := 0.0
					for e := h * d; e < (h+1)*d; e++ {
						dot += q[i][e] * k[j][e]
					}
					weights = append(weights, math.Exp(dot/math.Sqrt(float64(d))))
					sum += weights[j]
				}
				for j, w := range weights {
					for e := h * d; e < (h+1)*d; e++ {
						row[e] += w / sum * v[j][e]
					}
				}
			}
			seen = append(seen, row)
		}
		x = x.add(seen.linear(p[8], p[9]))
		hidden := x.norm(p[10], p[11]).linear(p[12], p[13])
		for i := range hidden {
			for j := range hidden[i] {
				hidden[i][j] = max(hidden[i][j], 0)
			}
		}
		x = x.add(hidden.linear(p[14], p[15]))
	}
	h := l.head
	return x.norm(read(t, h[0]), read(t, h[1])).linear(read(t, h[2]), read(t, h[3]))
}

func TestTheModelIsThatOfItsDefinition(t *testing.T) {
	s := tiny
	s.Blocks = []int{2}
	ids := []int32{3, 10, 0, 7, 7, 1, 2, 3, 4, 5}
	labels := []int32{1, 1, 2, 3, 5, 8, 0, 9, 10, 4}
	m, err := newWhole(s, 0.02, nil, device.Host())
	require.NoError(t, err)
	for step := range 60 { // the first weights are so small that only the embedding would show
		before, err := m.step(t.Context(), []micro{{autodiff.New(ids, 2, 5), autodiff.New(labels, 2, 5)}})
		require.NoError(t, err)
		if step == 59 {
			require.Less(t, before, 0.1, "it learns")
		}
	}
	l := m.stages[0]
	logits := read(t, l.forward(autodiff.New(ids, 2, 5), nil))
	want := append(reference(t, l, s.Heads, ids[:5]), reference(t, l, s.Heads, ids[5:])...)
	loss := 0.0
	for i := range want {
		require.InDeltaSlice(t, want[i], logits[i], 1e-3)
		sum := 0.0
		for _, x := range want[i] {
			sum += math.Exp(x)
		}
		loss += (math.Log(sum) - want[i][labels[i]]) / float64(len(want))
	}
	got, err := l.forward(autodiff.New(ids, 2, 5), autodiff.New(labels, 2, 5)).Item()
	require.NoError(t, err)
	require.InEpsilon(t, loss, got, 1e-4)
}

func TestWhatFollowsATokenHasNoEffectOnIt(t *testing.T) {
	s := tiny
	s.Blocks = []int{2}
	l, err := newLayers(s, 0, device.Host())
	require.NoError(t, err)
	one, other := read(t, l.forward(autodiff.New([]int32{1, 2, 3, 4, 5}, 1, 5), nil)), read(t, l.forward(autodiff.New([]int32{1, 2, 3, 9, 0}, 1, 5), nil))
	require.Equal(t, one[:3], other[:3])
	require.NotEqual(t, one[3], other[3])
}

func TestTheSplitIntoStagesDoesNotChangeTheModel(t *testing.T) {
	ids, labels := autodiff.New([]int32{1, 2, 3, 4, 5}, 1, 5), autodiff.New([]int32{2, 3, 4, 5, 6}, 1, 5)
	var losses []float64
	for _, blocks := range [][]int{{3}, {1, 1, 1}, {0, 3, 0}, {2, 0, 1}} {
		s := tiny
		s.Blocks = blocks
		m, err := newWhole(s, 1e-3, nil, device.Host())
		require.NoError(t, err)
		params := 0
		for _, l := range m.stages {
			for _, p := range l.params() {
				params += p.Shape().Elems()
			}
		}
		require.Equal(t, s.parameters(), params)
		loss, err := m.forward(ids, labels).Item()
		require.NoError(t, err)
		losses = append(losses, loss)
	}
	for _, l := range losses {
		require.Equal(t, losses[0], l)
	}
}

func TestAPieceIsPickedAsOftenAsItsLogitSays(t *testing.T) {
	src := rand.New(rand.NewPCG(1, 1))
	logits := []float32{0, float32(math.Log(3)), float32(math.Inf(-1)), float32(math.Log(6))}
	var counts [4]float64
	const draws = 20000
	for range draws {
		counts[pick(src, logits, 1)] += 1.0 / draws
	}
	require.InDeltaSlice(t, []float64{0.1, 0.3, 0, 0.6}, counts[:], 0.02)
	require.EqualValues(t, 3, pick(src, logits, 0))
	require.EqualValues(t, 3, pick(src, logits, 1e-9))
}

package parallel_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/parallel"
)

// embedding is a table, and what is made of its rows.
type embedding struct {
	table *autodiff.Tensor
	look  func(table, ids *autodiff.Tensor) *autodiff.Tensor
}

// drawn is the same on all ranks: an embedding, and for each step and rank which rows it takes.
type drawn struct {
	extent, width int
	double        bool
	limit         int
	steps         [][]lookup
}

type lookup struct {
	ids     []int64
	weights []float32 // a row each; some are −0
	dense   bool      // the gradient is made of the whole table
	parts   bool      // half of it is accumulated before
}

func draw(src *rand.Rand, size int) (d drawn) {
	d = drawn{extent: 1 + src.IntN(30), width: 1 + src.IntN(5), double: src.IntN(2) == 0, limit: []int{0, 1, 64}[src.IntN(3)]}
	for range 5 {
		var all []lookup
		for range size {
			var l lookup
			if src.IntN(4) > 0 {
				for range src.IntN(2 * d.extent) {
					l.ids = append(l.ids, int64(src.IntN(d.extent)))
				}
			}
			for range len(l.ids) * d.width {
				v := float32(src.NormFloat64())
				if src.IntN(4) == 0 {
					v = -0 * v
				}
				l.weights = append(l.weights, v)
			}
			l.dense, l.parts = src.IntN(6) == 0, src.IntN(4) == 0
			all = append(all, l)
		}
		d.steps = append(d.steps, all)
	}
	return d
}

func (d drawn) table() *autodiff.Tensor {
	if d.double {
		return autodiff.New(make([]float64, d.extent*d.width), d.extent, d.width).RequireGrad()
	}
	return autodiff.New(make([]float32, d.extent*d.width), d.extent, d.width).RequireGrad()
}

// loss weights what is looked up.
func (e embedding) loss(l lookup, lo, hi, width int) *autodiff.Tensor {
	look := e.look
	if l.dense {
		look = autodiff.Embedding
	}
	weights := autodiff.Cast(autodiff.New(l.weights[lo*width:hi*width], hi-lo, width), e.table.Dtype())
	return autodiff.Sum(autodiff.Mul(look(e.table, autodiff.New(l.ids[lo:hi])), weights))
}

// train gives the gradient of each step, nil where there is none, and whether it came as rows.
func (d drawn) train(c context.Context, g *collective.Group, look func(table, ids *autodiff.Tensor) *autodiff.Tensor) (all [][]byte, sparse []bool, err error) {
	e := embedding{d.table(), look}
	other := autodiff.New([]float32{1}).RequireGrad()
	r, err := parallel.Replicate(c, g, []*autodiff.Tensor{e.table, other}, parallel.Config{Bucket: d.limit, Check: true})
	if err != nil {
		return nil, nil, err
	}
	for n, step := range d.steps {
		l := step[g.Rank()]
		lo, hi := 0, len(l.ids)
		if l.parts && hi > 1 {
			lo = hi / 2
			if err := r.Accumulate(e.loss(l, 0, lo, d.width), lo); err != nil {
				return nil, nil, fmt.Errorf("step %d: %w", n, err)
			}
		}
		loss, rows := autodiff.Sum(other), 1
		if hi > lo {
			loss, rows = e.loss(l, lo, hi, d.width), hi-lo
		}
		grads, err := r.Backward(c, loss, rows)
		if err != nil {
			return nil, nil, fmt.Errorf("step %d: %w", n, err)
		}
		grad := grads[e.table]
		sparse = append(sparse, grad.IsSparse())
		if grad == nil {
			all = append(all, nil)
			continue
		}
		b, err := grad.Acquire()
		if err != nil {
			return nil, nil, err
		}
		mem, err := b.Host()
		if err != nil {
			return nil, nil, err
		}
		all = append(all, bytes.Clone(mem))
		if err := b.Release(); err != nil {
			return nil, nil, err
		}
	}
	return all, sparse, nil
}

func TestSparseGradientsAreThoseOfWholeTablesBitForBit(t *testing.T) {
	rows, dense := 0, 0
	for size := 1; size <= 4; size++ {
		t.Run(fmt.Sprint(size, " ranks"), func(t *testing.T) {
			w := newWorld(t, size)
			for seed := range uint64(soak.Cases(6)) {
				r, d := w.asWhole(draw(rand.New(rand.NewPCG(seed, uint64(size))), size), seed)
				rows, dense = rows+r, dense+d
			}
		})
	}
	require.Positive(t, rows)
	require.Positive(t, dense)
}

// asWhole compares with whole tables, and counts the steps in which rows came, and all of it.
func (w *world) asWhole(d drawn, seed uint64) (rows, dense int) {
	t, size := w.t, len(w.gs)
	got, whole, sparse := make([][][]byte, size), make([][][]byte, size), make([][]bool, size)
	w.each(func(r int) (err error) {
		if got[r], sparse[r], err = d.train(t.Context(), w.gs[r], autodiff.EmbeddingSparse); err != nil {
			return err
		}
		whole[r], _, err = d.train(t.Context(), w.gs[r], autodiff.Embedding)
		return err
	})
	for r := range size {
		require.True(t, slices.EqualFunc(whole[0], got[r], bytes.Equal), "seed %d, rank %d of %d", seed, r, size)
		require.Equal(t, sparse[0], sparse[r])
	}
	some, only := false, true
	for _, l := range d.steps[0] {
		some, only = some || len(l.ids) > 0, only && (len(l.ids) == 0 || !l.dense)
	}
	require.Equal(t, some && only, sparse[0][0], "seed %d", seed)
	for n, is := range sparse[0] {
		if is {
			rows++
		} else if whole[0][n] != nil {
			dense++
		}
	}
	return rows, dense
}

func TestASparseGradientTravelsAsTheRowsThatItHas(t *testing.T) {
	const extent, width = 4096, 8
	w := newWorld(t, 2)
	w.each(func(r int) error {
		table := autodiff.New(make([]float32, extent*width), extent, width).RequireGrad()
		replicas, err := parallel.Replicate(t.Context(), w.gs[r], []*autodiff.Tensor{table}, parallel.Config{})
		if err != nil {
			return err
		}
		for range 3 {
			loss := autodiff.Sum(autodiff.EmbeddingSparse(table, autodiff.New([]int64{7, int64(r), 7})))
			grads, err := replicas.Backward(t.Context(), loss, 3)
			if err != nil {
				return err
			}
			ids, values, sparse := grads[table].Rows()
			if !sparse {
				return fmt.Errorf("the gradient is dense")
			}
			at, err := autodiff.Values[int64](ids)
			if err != nil {
				return err
			}
			v, err := autodiff.Values[float32](autodiff.Sum(values, 1))
			if err != nil {
				return err
			}
			if fmt.Sprint(at, v) != "[0 1 7] [4 4 16]" {
				return fmt.Errorf("rows %v of %v", at, v)
			}
		}
		return nil
	})
	for _, e := range w.gs[0].Trace() {
		if !strings.HasPrefix(e.Call, "Broadcast") {
			require.Less(t, e.Bytes, 1024, e.Call)
		}
	}
}

func TestAGradientOfRowsGoesToTheDeviceOfItsTable(t *testing.T) {
	w := newWorld(t, 2)
	w.each(func(r int) error {
		far := device.NewSim(device.SimConfig{})
		table := autodiff.To(autodiff.New(make([]float32, 40), 20, 2), far).RequireGrad()
		replicas, err := parallel.Replicate(t.Context(), w.gs[r], []*autodiff.Tensor{table}, parallel.Config{Check: true})
		if err != nil {
			return err
		}
		for range 2 {
			loss := autodiff.Sum(autodiff.EmbeddingSparse(table, autodiff.To(autodiff.New([]int64{3}), far)))
			grads, err := replicas.Backward(t.Context(), loss, 1)
			if err != nil {
				return err
			}
			if g := grads[table]; !g.IsSparse() || g.Device() != table.Device() {
				return fmt.Errorf("the gradient is %v", g)
			}
		}
		return nil
	})
}

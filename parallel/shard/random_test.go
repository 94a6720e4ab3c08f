package shard_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/shard"
)

// program is what all ranks do, each with layers of its own: some are left out.
type program struct {
	sizes [][]int // of the parameters of each layer
	wide  [][]bool
	stage shard.Stage
	steps []turns
}

// turns are a step: forwards that nobody goes back through, and one of which there is a backward.
type turns struct {
	idle [][][]bool // by forward, rank and layer
	used [][][]bool // by rank, layer and parameter
	rows []int      // by rank
}

func randomProgram(src *rand.Rand, ranks int) (p program) {
	p.stage = shard.Stage(src.IntN(2))
	for range 1 + src.IntN(4) {
		var sizes []int
		var wide []bool
		for range 1 + src.IntN(3) {
			sizes, wide = append(sizes, []int{0, 1, 2, 15, 16, 17, 100, 300, 5000}[src.IntN(9)]), append(wide, src.IntN(3) == 0)
		}
		p.sizes, p.wide = append(p.sizes, sizes), append(p.wide, wide)
	}
	for range 4 {
		t := turns{rows: make([]int, ranks)}
		for range src.IntN(3) {
			t.idle = append(t.idle, p.uses(src, ranks))
		}
		for r := range ranks {
			t.rows[r] = src.IntN(4)
			var of [][]bool
			for _, sizes := range p.sizes {
				var used []bool
				for range sizes {
					used = append(used, src.IntN(3) > 0)
				}
				of = append(of, used)
			}
			t.used = append(t.used, of)
		}
		t.rows[src.IntN(ranks)]++
		p.steps = append(p.steps, t)
	}
	return p
}

// uses are by which ranks which layers are used; each rank uses one at least.
func (p program) uses(src *rand.Rand, ranks int) (all [][]bool) {
	for range ranks {
		used := make([]bool, len(p.sizes))
		for k := range used {
			used[k] = src.IntN(3) > 0
		}
		used[src.IntN(len(used))] = true
		all = append(all, used)
	}
	return all
}

func (p program) params(seed uint64) (layers [][]*autodiff.Tensor) {
	src := rand.New(rand.NewPCG(seed, 3))
	for k, sizes := range p.sizes {
		var params []*autodiff.Tensor
		for i, n := range sizes {
			t := autodiff.NormalFrom(src, 1, n)
			if p.wide[k][i] {
				t = autodiff.Cast(t, device.Float64).Copy()
			}
			params = append(params, t.RequireGrad())
		}
		layers = append(layers, params)
	}
	return layers
}

// contribution is what a parameter adds to a loss: one that reads it in its backward.
func contribution(p *autodiff.Tensor, f float64) *autodiff.Tensor {
	return autodiff.Cast(autodiff.Sum(autodiff.Scale(autodiff.Mul(p, p), f)), device.Float64)
}

// loss adds up what some parameters give, layer by layer; nil where none do.
func loss(owner *autodiff.Arena, layers [][]*autodiff.Tensor, used [][]bool, f float64, layer func(k int, fn func() *autodiff.Tensor) *autodiff.Tensor) *autodiff.Tensor {
	sum := autodiff.Scalar(0.0)
	if err := owner.Adopt(sum); err != nil {
		return autodiff.Failed(err)
	}
	for k, params := range layers {
		if !slices.Contains(used[k], true) {
			continue
		}
		sum = layer(k, func() *autodiff.Tensor {
			all := sum
			for i, p := range params {
				if used[k][i] {
					all = autodiff.Add(all, contribution(p, f))
				}
			}
			return all
		})
	}
	if !sum.RequiresGrad() {
		return nil
	}
	return sum
}

func (p program) replicated(c context.Context, g *collective.Group) ([][]float64, error) {
	layers := p.params(uint64(g.Rank()))
	params := slices.Concat(layers...)
	replicas, err := parallel.Replicate(c, g, params, parallel.Config{Bucket: 1 << 10})
	if err != nil {
		return nil, err
	}
	opt, err := optim.New(optim.Adam{LR: 0.1}, params...)
	if err != nil {
		return nil, err
	}
	for n, t := range p.steps {
		rows, owner := t.rows[g.Rank()], autodiff.NewArena("step")
		l := loss(owner, layers, t.used[g.Rank()], float64(g.Rank()+1), func(_ int, fn func() *autodiff.Tensor) *autodiff.Tensor { return fn() })
		if l == nil {
			rows = 0
		}
		grads, err := replicas.Backward(c, l, rows)
		if err == nil && len(grads) > 0 {
			err = opt.Step(grads)
		}
		owner.Free()
		if err != nil && !t.nobody() {
			return nil, fmt.Errorf("step %d: %w", n, err)
		}
	}
	return wide(params)
}

// nobody says that no rank uses anything.
func (t turns) nobody() bool {
	for r, of := range t.used {
		if t.rows[r] > 0 && slices.ContainsFunc(of, func(used []bool) bool { return slices.Contains(used, true) }) {
			return false
		}
	}
	return true
}

// wide are values as float64.
func wide(params []*autodiff.Tensor) (all [][]float64, err error) {
	for _, p := range params {
		v, err := autodiff.Values[float64](autodiff.Cast(p, device.Float64))
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

func (p program) spread(c context.Context, g *collective.Group) (all [][]float64, err error) {
	layers := p.params(uint64(g.Rank()))
	s, err := shard.New(c, g, layers, shard.Config{Stage: p.stage})
	if err != nil {
		return nil, err
	}
	opt, err := optim.NewGroups(s.Named(optim.Adam{LR: 0.1}))
	if err != nil {
		return nil, err
	}
	for n, t := range p.steps {
		for _, used := range t.idle {
			for k, is := range used[g.Rank()] {
				if is {
					err = s.With(c, k, func() error { return layers[k][0].Copy().Err() })
				}
				if err != nil {
					return nil, err
				}
			}
			if err := s.Finish(c); err != nil {
				return nil, err
			}
		}
		if err := p.step(c, s, opt, layers, t, g.Rank()); err != nil && !t.nobody() {
			return nil, fmt.Errorf("step %d: %w", n, err)
		}
	}
	for k := range layers {
		if err := s.With(c, k, func() error {
			v, err := wide(layers[k])
			all = append(all, v...)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return all, s.Finish(c)
}

func (p program) step(c context.Context, s *shard.Shards, opt *optim.Local, layers [][]*autodiff.Tensor, t turns, rank int) error {
	rows, owner := t.rows[rank], autodiff.NewArena("step")
	defer owner.Free()
	l := loss(owner, layers, t.used[rank], float64(rank+1), func(k int, fn func() *autodiff.Tensor) *autodiff.Tensor { return s.Layer(c, k, fn) })
	if l == nil {
		rows = 0
		if err := s.Skip(c); err != nil {
			return err
		}
	}
	grads, err := s.Backward(c, l, rows)
	if err != nil || len(grads) == 0 {
		return err
	}
	return opt.Step(grads)
}

func TestWhateverRanksUseTheyTrainAsReplicasDo(t *testing.T) {
	for n := range soak.Cases(10) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			src := rand.New(rand.NewPCG(uint64(n), 11))
			ranks := 1 + src.IntN(4)
			p := randomProgram(src, ranks)
			w := newWorld(t, ranks)
			want, got := make([][][]float64, ranks), make([][][]float64, ranks)
			w.Each(func(r int) (err error) {
				want[r], err = p.replicated(t.Context(), w.Gs[r])
				return err
			})
			w.Each(func(r int) (err error) {
				got[r], err = p.spread(t.Context(), w.Gs[r])
				return err
			})
			require.Equal(t, want, got)
		})
	}
}

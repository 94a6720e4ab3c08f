//go:build !race

package gpu

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/internal/testgpu"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/gpu/internal/cu"
)

// same runs an instruction with operands and results as they lie, in some ways, and with all of
// them in float32, which the units round to the same factors: the results are the same numbers,
// rounded where they are to be; near them on a real GPU, whose compiler joins what it likes.
// Operands are bfloat16 where the first way has them so. It gives that one's results.
func same(t *testing.T, g *device.Accelerator, of kernels.Instr, x []kerneltest.Tensor, ways ...[2]uint64) (first []kerneltest.Tensor) {
	x, _ = lies{of: of, in: ways[0][0]}.wide(t, x)
	want, err := lies{of: of}.run(t, g, x)
	require.NoError(t, err)
	for _, w := range ways {
		got, err := lies{of: of, in: w[0], out: w[1]}.run(t, g, x)
		require.NoError(t, err)
		for k := range want {
			whole := want[k]
			if w[1]>>k&1 == 1 {
				whole = rounded(want[k:k+1], 16)[0]
			}
			if testgpu.Real() {
				near(t, got[k:k+1], []kerneltest.Tensor{whole})
				continue
			}
			require.Equal(t, whole.V, got[k].V, "result %d of %v where %b", k, of, w)
		}
		if first == nil {
			first = got
		}
	}
	return first
}

// tokens draws what one product makes of tokens, and the views of its queries, keys and values.
func (x heads) tokens(r *rand.Rand) (kerneltest.Tensor, []*kernels.View) {
	wide := x.h * x.d
	var views []*kernels.View
	for k := range 3 {
		views = append(views, &kernels.View{Shape: device.Shape{x.b, x.t, x.h, x.d}, Offset: k * wide, Strides: []int{3 * x.t * wide, 3 * wide, x.d, 1}})
	}
	return rounded([]kerneltest.Tensor{scaled(drawn(r, device.Float32, x.b, x.t, 3*wide), 0.5)}, 16)[0], views
}

func TestAttentionOfBFloat16IsThatOfTheSameNumbersInFloat32(t *testing.T) {
	r, g := rand.New(rand.NewPCG(16, 6)), brief(t, tensor(t))
	for _, x := range []heads{
		{1, 150, 150, 1, 64}, {2, 20, 20, 2, 8}, {1, 130, 200, 1, 72}, {1, 40, 40, 1, 128}, {1, 3, 0, 1, 8}, {1, 0, 3, 1, 8}, {1, 1, 300, 1, 16}, {2, 9, 9, 3, 24},
	} {
		for _, causal := range []bool{false, true} {
			if causal && x.s < x.t {
				continue
			}
			t.Run(fmt.Sprint(x, causal), func(t *testing.T) {
				forward, _ := x.attended(t, r, device.Float32, false)
				for k := range forward {
					forward[k] = scaled(forward[k], 0.5)
				}
				of := kernels.Attention{Causal: causal}
				made := same(t, g, of, forward, [2]uint64{7, 1}, [2]uint64{7, 0})
				forward, _ = lies{of: of, in: 7}.wide(t, forward)
				near(t, made, results(t, device.Host(), of, forward...))
				gy := rounded([]kerneltest.Tensor{scaled(drawn(r, device.Float32, forward[0].Shape...), 0.5)}, 16)
				backward := append(append(forward[:3:3], made...), gy...)
				same(t, g, kernels.AttentionGrad{Causal: causal}, backward, [2]uint64{0b001111, 2}, [2]uint64{0b101111, 5})
				if x.t == x.s {
					same(t, g, kernels.AttentionGrad{Causal: causal, Joined: true}, backward, [2]uint64{0b001111, 0}, [2]uint64{0b101111, 1})
				}
			})
		}
	}
}

func TestAttentionOfBFloat16ReadsWhatAProductOfTokensMakesWhereItLies(t *testing.T) {
	r, g := rand.New(rand.NewPCG(16, 7)), brief(t, tensor(t))
	for _, x := range []heads{{2, 37, 37, 3, 8}, {1, 70, 70, 2, 64}, {1, 9, 9, 2, 104}} {
		joined, views := x.tokens(r)
		i := kernels.Viewed{Of: kernels.Attention{Causal: true}, In: views}
		made := same(t, g, i, []kerneltest.Tensor{joined, joined, joined}, [2]uint64{7, 1})
		near(t, made, results(t, device.Host(), i, joined, joined, joined))
		grad := kernels.Viewed{Of: kernels.AttentionGrad{Causal: true, Joined: true}, In: append(slices.Clone(views), nil, nil, nil)}
		gy := scaled(drawn(r, device.Float32, made[0].Shape...), 0.5)
		same(t, g, grad, []kerneltest.Tensor{joined, joined, joined, made[0], made[1], gy}, [2]uint64{0b001111, 1}) // a gradient that is no bfloat16
		in, out := lies{of: i, in: 7, out: 1}.types(t, []kerneltest.Tensor{joined, joined, joined})
		c, err := g.Memory().(*memory).backend.lower(i, in, out)
		require.NoError(t, err)
		require.Len(t, c.launches, 1)
		require.Zero(t, c.scratch)
	}
}

func TestAttentionReadsBFloat16OnlyAsItsKernelsTakeIt(t *testing.T) {
	narrow := func(s ...int) kernels.Type { return kernels.Type{Dtype: device.BFloat16, Shape: s} }
	float := func(s ...int) kernels.Type { return kernels.Type{Dtype: device.Float32, Shape: s} }
	seen := func(offset int, strides ...int) []*kernels.View {
		return []*kernels.View{nil, {Shape: device.Shape{1, 2, 1, 8}, Offset: offset, Strides: strides}, nil}
	}
	q, sums := narrow(1, 2, 1, 8), float(1, 1, 2)
	b := brief(t, ptxtest.New(ptx.Config{})).Memory().(*memory).backend
	grad := func(y, gy kernels.Type) []kernels.Type { return []kernels.Type{q, q, q, y, sums, gy} }
	for name, c := range map[string]struct {
		i    kernels.Instr
		in   []kernels.Type
		uses bool
	}{
		"as they like it":             {kernels.Attention{}, []kernels.Type{q, q, q}, true},
		"one is float32":              {kernels.Attention{}, []kernels.Type{q, float(1, 2, 1, 8), q}, false},
		"an odd extent":               {kernels.Attention{}, []kernels.Type{narrow(1, 2, 1, 12), narrow(1, 2, 1, 12), narrow(1, 2, 1, 12)}, false},
		"a large one":                 {kernels.Attention{}, []kernels.Type{narrow(1, 2, 1, 264), narrow(1, 2, 1, 264), narrow(1, 2, 1, 264)}, false},
		"rows apart by eights":        {kernels.Viewed{Of: kernels.Attention{}, In: seen(8, 0, 16, 0, 1)}, []kernels.Type{q, narrow(64), q}, true},
		"rows apart by fours":         {kernels.Viewed{Of: kernels.Attention{}, In: seen(0, 0, 12, 0, 1)}, []kernels.Type{q, narrow(64), q}, false},
		"rows that begin anywhere":    {kernels.Viewed{Of: kernels.Attention{}, In: seen(4, 0, 16, 0, 1)}, []kernels.Type{q, narrow(64), q}, false},
		"turned":                      {kernels.Viewed{Of: kernels.Attention{}, In: seen(0, 0, 8, 0, 8)}, []kernels.Type{q, narrow(64), q}, false},
		"the gradient":                {kernels.AttentionGrad{}, grad(q, q), true},
		"with its operand in float32": {kernels.AttentionGrad{}, grad(q, float(1, 2, 1, 8)), true},
		"with the result in float32":  {kernels.AttentionGrad{}, grad(float(1, 2, 1, 8), q), false},
	} {
		t.Run(name, func(t *testing.T) {
			for k, x := range c.in {
				require.Equal(t, c.uses && kernels.IsNarrow(x), b.readsNarrow(c.i, c.in, k), "operand %d", k)
			}
			require.Equal(t, c.uses, b.writesNarrow(c.i, c.in, 0))
		})
	}
	require.False(t, b.writesNarrow(kernels.Attention{}, []kernels.Type{q, q, q}, 1), "the logarithms")
	exact := machineOf(t, ptxtest.New(ptx.Config{})).Memory().(*memory).backend
	require.False(t, exact.readsNarrow(kernels.Attention{}, []kernels.Type{q, q, q}, 0), "products are to be of float32")
	_, err := exact.lower(kernels.Attention{}, []kernels.Type{q, q, q}, []kernels.Type{q, sums})
	require.ErrorIs(t, err, kernels.ErrNoBackend)
}

// without is a driver that leaves the nth match out of a module that it loads.
type without struct {
	cuda.Driver
	what   *regexp.Regexp
	nth    int
	module []byte
}

func (w *without) Load(text []byte) (cuda.Module, error) {
	if bytes.Equal(text, w.module) {
		at := w.what.FindAllIndex(text, -1)[w.nth]
		text = slices.Concat(text[:at[0]], text[at[1]:])
	}
	return w.Driver.Load(text)
}

func TestEveryWaitForCopiesOfTilesIsNeeded(t *testing.T) {
	wait, module := regexp.MustCompile(`cp\.async\.wait_all;`), cu.Module("attention_b64")
	x := heads{1, 90, 90, 1, 16}
	joined, views := x.tokens(rand.New(rand.NewPCG(16, 8)))
	run := func(t *testing.T, d cuda.Driver) (all string, err error) {
		g, err := Config{Precision: BF16}.On(d, device.CUDA(0))
		require.NoError(t, err)
		defer func() { _ = g.Close() }() // it may be lost
		add := func(got []kerneltest.Tensor) {
			for _, x := range got {
				all += fmt.Sprintln(x.V)
			}
		}
		for _, of := range []kernels.Attention{{}, {Masked: true, Drop: 0.5}} {
			in, last, none := []kerneltest.Tensor{joined, joined, joined}, []kerneltest.Tensor(nil), []*kernels.View(nil)
			if of.Masked {
				last, none = []kerneltest.Tensor{kerneltest.New(device.Float32, []int{1, 1, 1, 1}, 0.5), kerneltest.New(device.Int64, []int{2}, 7)}, make([]*kernels.View, 2)
			}
			i := kernels.Viewed{Of: of, In: append(slices.Clone(views), none...)}
			made, err := lies{of: i, in: 7, out: 1}.run(t, g, append(in, last...))
			if err != nil {
				return "", err
			}
			add(made)
			grad := kernels.Viewed{Of: kerneltest.GradOf(of, true), In: append(append(slices.Clone(views), nil, nil, nil), none...)}
			got, err := lies{of: grad, in: 0b101111, out: 1}.run(t, g, append(append(in, made[0], made[1], made[0]), last...))
			if err != nil {
				return "", err
			}
			add(got)
		}
		return all, nil
	}
	right, err := run(t, ptxtest.New(ptx.Config{}))
	require.NoError(t, err)
	for nth := range wait.FindAllIndex(module, -1) {
		if soak.Cases(1) == 1 && nth%3 != 0 {
			continue // each takes as long as many other tests
		}
		wrong, err := run(t, &without{ptxtest.New(ptx.Config{}), wait, nth, module})
		require.True(t, err != nil || right != wrong, "wait %d", nth)
	}
}

// TestOnlyInfinityHidesAKey has one query see the lowest finite number for all keys: it attends to
// all of them alike.
func TestOnlyInfinityHidesAKey(t *testing.T) {
	r := rand.New(rand.NewPCG(16, 9))
	q, k, v := drawn(r, device.Float32, 1, 3, 1, 16), drawn(r, device.Float32, 1, 5, 1, 16), drawn(r, device.Float32, 1, 5, 1, 16)
	mask := kerneltest.New(device.Float32, []int{1, 1, 3, 5}, make([]float64, 15)...)
	for key := range 5 {
		mask.V[5+key] = -math.MaxFloat32
	}
	mask.V[10], mask.V[11] = -math.MaxFloat32, math.Inf(-1)
	of, made := kernels.Attention{Masked: true}, map[Precision][]kerneltest.Tensor{}
	for _, p := range []Precision{Float32, BF16} {
		d, err := Config{Precision: p}.On(ptxtest.New(ptx.Config{}), device.CUDA(0))
		require.NoError(t, err)
		got, err := lies{of: of}.run(t, d, []kerneltest.Tensor{q, k, v, mask})
		require.NoError(t, err)
		grads, err := lies{of: kerneltest.GradOf(of, false)}.run(t, d, []kerneltest.Tensor{q, k, v, got[0], got[1], q, mask})
		require.NoError(t, err)
		made[p] = append(got[:1:1], grads...)
		require.NoError(t, d.Close())
	}
	for n, want := range made[Float32] {
		var off, all float64
		for k, v := range want.V {
			off, all = off+(v-made[BF16][n].V[k])*(v-made[BF16][n].V[k]), all+v*v
		}
		require.Less(t, math.Sqrt(off/all), 0.03, "result %d", n)
	}
	for e := range 16 { // of the query that sees all keys alike
		mean := 0.0
		for key := range 5 {
			mean += v.V[key*16+e] / 5
		}
		require.InDelta(t, mean, made[BF16][0].V[16+e], 0.02)
	}
}

//go:build !race

package gpu

import (
	"bytes"
	"errors"
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
	"github.com/weft-project/weft/kernels"
	backends "github.com/weft-project/weft/kernels/backend"
	"github.com/weft-project/weft/kernels/gpu/internal/cu"
)

// The interpreter runs on one goroutine, ten times slower under the race detector, which has
// nothing to see there.

// heads are the extents of an attention.
type heads struct{ b, t, s, h, d int }

// attended draws operands of attention and of its gradient. The results that the gradient reads are
// the host's.
func (x heads) attended(t *testing.T, r *rand.Rand, d device.Dtype, causal bool) (forward, backward []kerneltest.Tensor) {
	forward = []kerneltest.Tensor{drawn(r, d, x.b, x.t, x.h, x.d), drawn(r, d, x.b, x.s, x.h, x.d), drawn(r, d, x.b, x.s, x.h, x.d)}
	made := results(t, device.Host(), kernels.Attention{Causal: causal}, forward...)
	return forward, append(append(forward[:3:3], made...), drawn(r, d, x.b, x.t, x.h, x.d))
}

// check compares attention and its gradient with their definitions.
func (x heads) check(t *testing.T, g device.Device, r *rand.Rand, d device.Dtype, causal bool) {
	forward, backward := x.attended(t, r, d, causal)
	kerneltest.Check(t, g, kernels.Attention{Causal: causal}, forward...)
	kerneltest.Check(t, g, kernels.AttentionGrad{Causal: causal}, backward...)
	if x.t == x.s {
		kerneltest.Check(t, g, kernels.AttentionGrad{Causal: causal, Joined: true}, backward...)
	}
}

func TestAttentionAgreesWithItsDefinitionAcrossTilesAndSlices(t *testing.T) {
	eachFloat(t, func(t *testing.T, r *rand.Rand, d device.Dtype) {
		g := machine(t)
		for _, x := range []heads{
			{1, 65, 65, 1, 8}, {1, 3, 70, 2, 5}, {2, 1, 1, 1, 65}, {1, 5, 7, 1, 130},
			{0, 3, 3, 1, 4}, {1, 0, 3, 1, 4}, {1, 3, 3, 0, 4}, {1, 2, 3, 1, 0},
		} {
			for _, causal := range []bool{false, true} {
				t.Run(fmt.Sprint(x, causal), func(t *testing.T) { x.check(t, g, r, d, causal) })
			}
		}
		t.Run("no keys", func(t *testing.T) { heads{1, 3, 0, 1, 4}.check(t, g, r, d, false) })
	})
}

func TestAttentionWithMasksSharedKeysAndDroppedWeightsAgreesWithItsDefinition(t *testing.T) {
	g, r := machine(t), rand.New(rand.NewPCG(23, 2))
	for n, x := range []struct{ b, t, s, heads, keys, d int }{{1, 1, 1, 1, 1, 1}, {2, 3, 5, 6, 2, 4}, {1, 65, 67, 2, 1, 8}, {1, 33, 97, 3, 1, 5}, {1, 4, 4, 2, 2, 66}} {
		for way := range 8 {
			of := kernels.Attention{Causal: way&1 != 0, Masked: way&2 != 0}
			if way&4 != 0 {
				of.Drop = 0.3
			}
			d := []device.Dtype{device.Float32, device.Float64}[(n+way/2)%2]
			t.Run(fmt.Sprint(x, of, d), func(t *testing.T) {
				kerneltest.CheckAttention(t, g, r, of, d, device.Shape{x.b, x.t, x.heads, x.d}, device.Shape{x.b, x.s, x.keys, x.d})
			})
		}
	}
}

func TestAttentionReadsWhatAProductOfTokensMakesWithoutACopy(t *testing.T) {
	eachFloat(t, func(t *testing.T, r *rand.Rand, d device.Dtype) {
		const b, n, h, e = 2, 5, 3, 4
		joined := drawn(r, d, b, n, 3*h*e)
		var views []*kernels.View
		for k := range 3 {
			views = append(views, &kernels.View{Shape: device.Shape{b, n, h, e}, Offset: k * h * e, Strides: []int{3 * n * h * e, 3 * h * e, e, 1}})
		}
		i := kernels.Viewed{Of: kernels.Attention{Causal: true}, In: views}
		g := machine(t)
		kerneltest.Check(t, g, i, joined, joined, joined)
		c, err := g.Memory().(*memory).backend.lower(i, []kernels.Type{joined.Type, joined.Type, joined.Type}, nil)
		require.NoError(t, err)
		require.Len(t, c.launches, 1)
		require.Zero(t, c.scratch)
	})
}

func TestHeadsOfAnyExtentAndFamilyAgree(t *testing.T) {
	d := machine(t)
	r := rand.New(rand.NewPCG(8, 8))
	for range 10 {
		for _, family := range []string{"Attention", "AttentionGrad", "ViewedAttention"} {
			i, in := kerneltest.Case(r, family)
			kerneltest.Check(t, d, i, in...)
		}
	}
}

func TestAttentionOverMoreRowsThanAGridHasBlocksIsRefused(t *testing.T) {
	b, err := backends.For(machine(t))
	require.NoError(t, err)
	q := kernels.Type{Dtype: device.Float32, Shape: device.Shape{1 << 16, 1, 1 << 16, 1}}
	_, err = b.Prepare(kernels.Attention{}, []kernels.Type{q, q, q})
	require.ErrorIs(t, err, kernels.ErrOperands)
	require.ErrorContains(t, err, "more than")
}

// planted is a driver that leaves one barrier out of what it loads, and all that follows the first
// entry named.
type planted struct {
	cuda.Driver
	until string
	nth   int
}

var barrier = regexp.MustCompile(`(?m)^\tbar\.sync \t0;$`)

// spoil leaves the barrier out, if there is one.
func (p *planted) spoil(text []byte) (spoilt []byte, ok bool) {
	if at := bytes.Index(text, []byte(".visible .entry "+p.until)); at >= 0 && p.until != "" {
		text = text[:at]
	}
	all := barrier.FindAllIndex(text, -1)
	if p.nth >= len(all) {
		return text, false
	}
	return slices.Concat(text[:all[p.nth][0]], text[all[p.nth][1]:]), true
}

func (p *planted) Load(text []byte) (cuda.Module, error) {
	text, _ = p.spoil(text)
	return p.Driver.Load(text)
}

// fault runs an instruction on whatever memory holds, and says what the GPU found.
func fault(t *testing.T, d *device.Accelerator, i kernels.Instr, in []kernels.Type) error {
	b, err := backends.For(d)
	require.NoError(t, err)
	k, err := b.Prepare(i, in)
	require.NoError(t, err)
	out, err := i.Infer(in)
	require.NoError(t, err)
	var bufs []*device.Buffer
	for _, x := range append(out, in...) {
		buf, err := d.Alloc(x.Bytes())
		require.NoError(t, err)
		defer func() { _ = buf.Release() }()
		bufs = append(bufs, buf)
	}
	err = k.Run(bufs[:len(out)], bufs[len(out):])
	return errors.Join(err, d.Download(make([]byte, 4), bufs[0], 0))
}

// both runs attention and its gradient, also with a mask and a key.
func (x heads) both(t *testing.T, d *device.Accelerator, of device.Dtype, more bool) error {
	q, k := kernels.Type{Dtype: of, Shape: device.Shape{x.b, x.t, x.h, x.d}}, kernels.Type{Dtype: of, Shape: device.Shape{x.b, x.s, x.h, x.d}}
	sums := kernels.Type{Dtype: device.Float32, Shape: device.Shape{x.b, x.h, x.t}}
	as := func(i kernels.Instr) kernels.Instr {
		if of == device.BFloat16 {
			return kernels.Narrow{Of: i}
		}
		return i
	}
	var errs []error
	for _, of := range []kernels.Attention{{}, {Masked: true, Drop: 0.5}} {
		var beside []kernels.Type
		if of.Masked {
			beside = []kernels.Type{{Dtype: device.Float32, Shape: device.Shape{1, 1, 1, x.s}}, {Dtype: device.Int64, Shape: device.Shape{2}}}
		}
		errs = append(errs, fault(t, d, as(of), append([]kernels.Type{q, k, k}, beside...)))
		if errors.Join(errs...) == nil {
			errs = append(errs, fault(t, d, as(kerneltest.GradOf(of, false)), append([]kernels.Type{q, k, k, q, sums, q}, beside...)))
		}
		if err := errors.Join(errs...); err != nil || !more {
			return err
		}
	}
	return nil
}

func TestEveryBarrierOfAttentionIsNeeded(t *testing.T) {
	for _, c := range []struct {
		module, until string
		with          Precision
		x             heads
		barriers      int
		of            device.Dtype
		more          bool
	}{
		{"attention", "attention_more_f32", Float32, heads{1, 65, 65, 1, 68}, 18, device.Float32, false}, // two tiles of each, and two slices
		{"attention_b64", "", BF16, heads{1, 80, 80, 1, 8}, 24, device.BFloat16, true},
		{"attention_b256", "", BF16, heads{1, 40, 40, 1, 136}, 22, device.BFloat16, true},
	} {
		on := func(d cuda.Driver) *device.Accelerator {
			acc, err := Config{Precision: c.with}.On(d, device.CUDA(0))
			require.NoError(t, err)
			return acc
		}
		right := on(ptxtest.New(ptx.Config{}))
		require.NoError(t, c.x.both(t, right, c.of, c.more))
		require.NoError(t, right.Close())
		for nth := range c.barriers + 1 {
			if soak.Cases(1) == 1 && nth%3 != 0 && nth < c.barriers {
				continue // each takes as long as a hundred other tests
			}
			p := &planted{ptxtest.New(ptx.Config{}), c.until, nth}
			if _, ok := p.spoil(cu.Module(c.module)); !ok {
				require.Equal(t, c.barriers, nth)
				break
			}
			require.Less(t, nth, c.barriers)
			d := on(p)
			err := c.x.both(t, d, c.of, c.more)
			require.Error(t, err, "barrier %d of %s", nth, c.module)
			require.Regexp(t, "race|reads shared memory at .* which nobody wrote", err.Error())
			_ = d.Close() // it is lost
		}
	}
}

// near fails where a result is further from another than rounding factors to bfloat16 explains.
func near(t *testing.T, got, want []kerneltest.Tensor) {
	require.Len(t, got, len(want))
	for k := range want {
		var most, off float64
		for n, w := range want[k].V {
			if got[k].V[n] == w {
				continue
			}
			most = max(most, math.Abs(w))
			off = max(off, math.Abs(got[k].V[n]-w))
			require.False(t, math.IsNaN(got[k].V[n]), "result %d at %d of %v", k, n, want[k].Shape)
		}
		require.LessOrEqual(t, off, 1e-2*(1+most), "result %d", k)
	}
}

// scaled makes a tensor's numbers smaller, so that scores are of some units whatever the extent of
// a row.
func scaled(x kerneltest.Tensor, by float64) kerneltest.Tensor {
	y := kerneltest.New(x.Dtype, x.Shape, x.V...)
	for k, v := range y.V {
		y.V[k] = float64(float32(v * by))
	}
	return y
}

func TestAttentionInBfloat16IsNearItsDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 16))
	g, err := Config{Precision: BF16}.On(tensor(t), device.CUDA(0))
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close()) }()
	for _, x := range []heads{
		{1, 150, 150, 1, 64}, {2, 20, 20, 2, 8}, {1, 130, 200, 1, 72}, {1, 40, 40, 1, 128}, {1, 20, 37, 1, 200}, {1, 35, 35, 1, 256}, {1, 3, 0, 1, 8}, {1, 0, 3, 1, 8}, {1, 1, 300, 1, 16},
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
				made := results(t, device.Host(), of, forward...)
				got := results(t, g, of, forward...)
				near(t, got, made)
				for k, again := range results(t, g, of, forward...) {
					require.Equal(t, got[k].V, again.V, "it changes from run to run")
				}
				backward := append(append(forward[:3:3], made...), scaled(drawn(r, device.Float32, forward[0].Shape...), 0.5))
				for _, joined := range []bool{false, true} {
					if joined && x.s != x.t {
						continue
					}
					grad := kernels.AttentionGrad{Causal: causal, Joined: joined}
					near(t, results(t, g, grad, backward...), results(t, device.Host(), grad, backward...))
				}
				c, err := g.Memory().(*memory).backend.lower(of, []kernels.Type{forward[0].Type, forward[1].Type, forward[2].Type}, nil)
				require.NoError(t, err)
				require.True(t, usesUnits(c, x.d), "the units for bfloat16 are not used")
			})
		}
	}
}

func TestWhatFewAskOfAttentionInBfloat16IsNearItsDefinition(t *testing.T) {
	r, g := rand.New(rand.NewPCG(23, 16)), brief(t, tensor(t))
	all := kernels.Attention{Causal: true, Masked: true, Drop: 0.3}
	for _, x := range []struct {
		b, t, s, heads, keys, d int
		ways                    []kernels.Attention
	}{
		{1, 1, 1, 1, 1, 8, []kernels.Attention{all}},
		{1, 33, 67, 4, 2, 8, []kernels.Attention{{}, {Masked: true}, {Drop: 0.3}, all}},
		{2, 17, 17, 3, 1, 24, []kernels.Attention{{Causal: true}, all}},
		{1, 130, 131, 2, 1, 64, []kernels.Attention{all}},
		{1, 19, 34, 2, 1, 96, []kernels.Attention{{Causal: true}, all}},
		{1, 31, 33, 2, 2, 128, []kernels.Attention{all}},
		{1, 15, 18, 2, 1, 200, []kernels.Attention{{}, all}},
	} {
		for _, of := range x.ways {
			t.Run(fmt.Sprint(x.b, x.t, x.s, x.heads, x.keys, x.d, of), func(t *testing.T) {
				q, k := device.Shape{x.b, x.t, x.heads, x.d}, device.Shape{x.b, x.s, x.keys, x.d}
				in := []kerneltest.Tensor{scaled(drawn(r, device.Float32, q...), 0.5), scaled(drawn(r, device.Float32, k...), 0.5), scaled(drawn(r, device.Float32, k...), 0.5)}
				more := kerneltest.Beside(r, of, in)
				forward := append(in[:3:3], more...)
				made := results(t, device.Host(), of, forward...)
				near(t, results(t, g, of, forward...), made)
				back := append(append(append(in[:3:3], made...), scaled(drawn(r, device.Float32, q...), 0.5)), more...)
				for _, joined := range []bool{false, true} {
					if !joined || x.s == x.t {
						grad := kerneltest.GradOf(of, joined)
						near(t, results(t, g, grad, back...), results(t, device.Host(), grad, back...))
					}
				}
			})
		}
	}
}

// usesUnits says whether a code is attention by the units for products of bfloat16, of heads of an
// extent.
func usesUnits(c *code, d int) bool {
	s := unitShape((&attention{d: d}).extent(), "", false)
	last := c.launches[len(c.launches)-1]
	return int(last.shared) == s.bytes && int(last.block[0]) == s.threads
}

func TestAttentionStaysInFloat32WhereTheUnitsForBfloat16CannotReadIt(t *testing.T) {
	of := func(d int) kernels.Type { return kernels.Type{Dtype: device.Float32, Shape: device.Shape{1, 2, 1, d}} }
	askew := &kernels.View{Shape: device.Shape{1, 2, 1, 8}, Offset: 1, Strides: []int{0, 12, 0, 1}}
	for name, c := range map[string]struct {
		arch, d int
		view    *kernels.View
		uses    bool
	}{
		"as they like it": {90, 8, nil, true}, "an odd extent": {90, 12, nil, false}, "a large one": {90, 264, nil, false}, "an old GPU": {75, 8, nil, false},
		"rows that begin anywhere, which are copied": {90, 8, askew, true},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := Config{Precision: BF16}.On(ptxtest.New(ptx.Config{Arch: c.arch}), device.CUDA(0))
			require.NoError(t, err)
			defer func() { require.NoError(t, g.Close()) }()
			x := of(c.d)
			if c.view != nil {
				x.Shape = device.Shape{64}
			}
			i := kernels.Viewed{Of: kernels.Attention{}, In: []*kernels.View{c.view, c.view, c.view}}
			code, err := g.Memory().(*memory).backend.lower(i, []kernels.Type{x, x, x}, nil)
			require.NoError(t, err)
			require.Equal(t, c.uses, usesUnits(code, c.d))
			fell := slices.ContainsFunc(backends.Ways(g), func(w kernels.Way) bool { return w.Work == "bfloat16 attention" && w.By == byFloat32 })
			require.Equal(t, !c.uses, fell, "it is not counted")
		})
	}
}

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
	"github.com/weft-project/weft/internal/testgpu"
	"github.com/weft-project/weft/kernels"
	backends "github.com/weft-project/weft/kernels/backend"
	"github.com/weft-project/weft/kernels/gpu/internal/cu"
)

// hopper is a device that computes attention by what compute capability 9.0 has, on a driver; nil:
// that of the GPU that tests run on, where it is one, or of the interpreter.
func hopper(t *testing.T, d cuda.Driver) *device.Accelerator {
	if d == nil {
		if d = testgpu.Open(t, ptx.Config{Races: true}); d.Info().Arch != hopperArch {
			require.NoError(t, d.Close())
			d = ptxtest.New(ptx.Config{Races: true})
		}
		if m, ok := d.(*ptx.Machine); ok {
			d = several{m}
		}
	}
	acc, err := Config{Precision: BF16, Hopper: true}.On(d, device.CUDA(0))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, acc.Close()) })
	return acc
}

// several is a machine of three processors, whose blocks do several pieces of work each.
type several struct{ *ptx.Machine }

func (m several) Info() cuda.Info {
	i := m.Machine.Info()
	i.Processor = 3
	return i
}

// byHoppers is how often attention was made by what compute capability 9.0 has, and why it was not.
func byHoppers(g *device.Accelerator) (times int64, why []string) {
	for _, w := range backends.Ways(g) {
		switch {
		case w.Work == workAttention && w.By == byHopper:
			times += w.Times
		case w.Work == workAttention && w.By == byUnits:
			why = append(why, w.Why)
		}
	}
	return times, why
}

// grouped are operands of attention whose heads share keys, of numbers that make scores of some
// units.
func (x heads) grouped(r *rand.Rand, keys int) []kerneltest.Tensor {
	var in []kerneltest.Tensor
	for _, shape := range []device.Shape{{x.b, x.t, x.h, x.d}, {x.b, x.s, keys, x.d}, {x.b, x.s, keys, x.d}} {
		in = append(in, scaled(drawn(r, device.Float32, shape...), 0.5))
	}
	return in
}

func TestAttentionByProductsOfFourWarpsIsNearItsDefinition(t *testing.T) {
	g, r := hopper(t, nil), rand.New(rand.NewPCG(23, 90))
	made := int64(0)
	check := func(x heads, keys int, causal bool) {
		t.Run(fmt.Sprint(x, keys, causal), func(t *testing.T) {
			in := x.grouped(r, keys)
			of := kernels.Attention{Causal: causal}
			got, want := results(t, g, of, in...), results(t, device.Host(), of, in...)
			near(t, got, want)
			for k, again := range results(t, g, of, in...) {
				require.Equal(t, got[k].V, again.V, "it changes from run to run")
			}
			if x.t > 0 && x.b > 0 && x.h > 0 {
				made++
			}
			times, why := byHoppers(g)
			require.Empty(t, why)
			require.GreaterOrEqual(t, times, made)
		})
	}
	for _, x := range []struct {
		heads
		keys   int
		causal bool
	}{
		{heads{1, 1, 1, 1, 64}, 1, true}, {heads{1, 128, 128, 1, 64}, 1, true}, {heads{1, 129, 257, 1, 64}, 1, true}, {heads{1, 200, 200, 2, 64}, 1, true},
		{heads{2, 65, 300, 4, 8}, 2, false}, {heads{1, 127, 129, 1, 128}, 1, true}, {heads{1, 150, 260, 2, 104}, 1, false}, {heads{1, 3, 270, 1, 56}, 1, true},
		{heads{1, 0, 3, 1, 64}, 1, false}, {heads{0, 3, 3, 1, 64}, 1, false},
	} {
		check(x.heads, x.keys, x.causal)
	}
	for range soak.Cases(4) {
		x := heads{1 + r.IntN(2), beside(r, 130), 0, 1 + r.IntN(2), 8 * (1 + r.IntN(8))}
		if r.IntN(2) == 0 {
			x.d = 128
		}
		x.s = x.t + r.IntN(2)*r.IntN(260)
		check(x, 1, r.IntN(2) == 0)
	}
}

func TestWhatAQueryMayNotSeeIsNoBusinessOfProductsOfFourWarps(t *testing.T) {
	g, r := hopper(t, nil), rand.New(rand.NewPCG(6, 90))
	for range soak.Cases(4) {
		d := []int{64, 128, 40}[r.IntN(3)]
		kerneltest.CheckUnseen(t, r, device.Float32, beside(r, 130), r.IntN(2)*r.IntN(200), d, func(i kernels.Instr, in ...kerneltest.Tensor) []kerneltest.Tensor {
			return results(t, g, i, in...)
		})
	}
	times, why := byHoppers(g)
	require.Positive(t, times)
	require.Empty(t, why)
}

// unmapped is a driver that encodes no maps.
type unmapped struct{ cuda.Driver }

// withoutImage is a driver that does not take the kernel, and counts how often it is asked to.
type withoutImage struct {
	*ptx.Machine
	err   error
	asked *int
}

func (d withoutImage) Load(image []byte) (cuda.Module, error) {
	if bytes.Contains(image, []byte("attention_h_64")) {
		*d.asked++
		return nil, &cuda.Error{Op: "load", Err: d.err}
	}
	return d.Machine.Load(image)
}

func TestAttentionThatProductsOfFourWarpsCannotMakeIsMadeByOthersAndCounted(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 90))
	var refused, full int
	machine := func(arch int) *ptx.Machine { return ptxtest.New(ptx.Config{Arch: arch}) }
	for name, c := range map[string]struct {
		d   cuda.Driver
		of  kernels.Attention
		x   heads
		why string
	}{
		"an older GPU":             {machine(89), kernels.Attention{}, heads{1, 3, 3, 1, 64}, whyNotHopper},
		"a later GPU":              {machine(100), kernels.Attention{}, heads{1, 3, 3, 1, 64}, whyNotHopper},
		"no maps":                  {unmapped{machine(90)}, kernels.Attention{}, heads{1, 3, 3, 1, 64}, whyNoMaps},
		"no kernel":                {withoutImage{machine(90), cuda.ErrImage, &refused}, kernels.Attention{}, heads{1, 3, 3, 1, 64}, whyFailedModule},
		"no memory for it":         {withoutImage{machine(90), device.ErrMemory, &full}, kernels.Attention{}, heads{1, 3, 3, 1, 64}, whyFailedModule},
		"a mask":                   {machine(90), kernels.Attention{Masked: true}, heads{1, 3, 3, 1, 64}, whyBeside},
		"dropped":                  {machine(90), kernels.Attention{Drop: 0.5}, heads{1, 3, 3, 1, 64}, whyBeside},
		"heads of another extent":  {machine(90), kernels.Attention{}, heads{1, 3, 3, 1, 72}, whyFoursExtent},
		"heads of a larger extent": {machine(90), kernels.Attention{}, heads{1, 3, 3, 1, 136}, whyFoursExtent},
		"no keys":                  {machine(90), kernels.Attention{}, heads{1, 3, 0, 1, 64}, whyNoKeys},
	} {
		t.Run(name, func(t *testing.T) {
			g := hopper(t, c.d)
			in := c.x.grouped(r, 1)
			in = append(in, kerneltest.Beside(r, c.of, in)...)
			for range 3 {
				near(t, results(t, g, c.of, in...), results(t, device.Host(), c.of, in...))
			}
			times, why := byHoppers(g)
			require.Zero(t, times)
			require.Equal(t, []string{c.why}, why)
		})
	}
	require.Equal(t, []int{1, 3}, []int{refused, full}, "what is refused is not compiled again")
}

// missing is a driver that loads a kernel without one of its lines.
type missing struct {
	*ptx.Machine
	line *regexp.Regexp
	nth  int
}

func (p *missing) spoil(text []byte) (spoilt []byte, ok bool) {
	all := p.line.FindAllIndex(text, -1)
	if p.nth >= len(all) {
		return text, false
	}
	return slices.Concat(text[:all[p.nth][0]], text[all[p.nth][1]:]), true
}

func (p *missing) Load(text []byte) (cuda.Module, error) {
	if bytes.Contains(text, []byte(".entry attention_h_")) {
		text, _ = p.spoil(text)
	}
	return p.Machine.Load(text)
}

func TestEveryWaitOfAttentionByProductsOfFourWarpsIsNeeded(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 91))
	x := heads{1, 66, 550, 2, 64} // two pieces of work; two tiles are not seen wholly, and three are
	finite := x.grouped(r, 1)
	spoiled := slices.Clone(finite) // by a value that only the last row sees
	spoiled[2].V = slices.Clone(finite[2].V)
	spoiled[2].V[len(spoiled[2].V)-1] = math.NaN()
	of := kernels.Attention{Causal: true}
	short := heads{1, 129, 129, 2, 64}.grouped(r, 1)    // four pieces, of which two have one tile
	run := func(p *missing) (all []string, err error) { // texts, as what is not a number is not equal to itself
		acc, err := Config{Precision: BF16, Hopper: true}.On(p, device.CUDA(0))
		require.NoError(t, err)
		for _, in := range [][]kerneltest.Tensor{finite, spoiled, short} {
			made := []kernels.Type{in[0].Type, {Dtype: device.Float32, Shape: device.Shape{1, 2, in[0].Shape[1]}}}
			out, err := kerneltest.RunOn(t, acc, of, made, in)
			if err != nil {
				_ = acc.Close() // it is lost
				return nil, err
			}
			all = append(all, fmt.Sprint(out[0].V, out[1].V))
		}
		return all, acc.Close()
	}
	want, err := run(&missing{ptxtest.New(ptx.Config{}), regexp.MustCompile("none"), 0})
	require.NoError(t, err)
	every, all := soak.Cases(1) > 1, 0
	for _, c := range []struct {
		line     string
		n        int
		needless []int // that the machine does not miss
	}{
		{`(?m)^\tmbarrier\.arrive\.expect_tx.*\n`, 5, nil},
		{`(?m)^\tmbarrier\.arrive\.shared.*\n`, 9, nil},
		{`(?m)^mbarrier\.try_wait.*\n@p bra done;\nbra again;\n`, 15, nil},
		{`(?m)^\twgmma\.fence.*\n`, 5, []int{2}}, // of two that nothing stands between
		{`(?m)^\twgmma\.commit_group.*\n`, 5, nil},
		{`(?m)^\twgmma\.wait_group.*\n`, 5, nil},
		{`(?m)^\tbar\.sync \t0;\n`, 1, nil},
	} {
		for nth := range c.n + 1 {
			p := &missing{ptxtest.New(ptx.Config{Steps: 1 << 22}), regexp.MustCompile(c.line), nth}
			_, is := p.spoil(cu.Module("attention_h64"))
			require.Equal(t, nth < c.n, is, c.line)
			if all++; !is || slices.Contains(c.needless, nth) || !every && all%8 != 0 {
				continue
			}
			got, err := run(p)
			require.True(t, err != nil || !slices.Equal(got, want), "nobody misses %s, the %d.", c.line, nth+1)
		}
	}
}

func TestProductsOfFourWarpsAskLittleOfMemory(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 90))
	for d, most := range map[int]float64{64: 7, 128: 4} { // instructions for each 16×8×16 multiplied
		m := ptxtest.New(ptx.Config{Traffic: true})
		g := hopper(t, m)
		l := lies{of: kernels.Attention{Causal: true}, in: 7, out: 1}
		in, _ := l.wide(t, heads{1, 512, 512, 1, d}.grouped(r, 1))
		_, err := l.run(t, g, in)
		require.NoError(t, err)
		x := m.Traffic()[fmt.Sprint("attention_h_", d)]
		tiles := x.Products / int64(d/16+8) // of 16 rows and 128 keys
		fine := float64(tiles * int64(2*d/16*16))
		t.Logf("%d: %+v; %.2f instructions, %.1f bytes of factors, %.2f wavefronts", d, x, float64(x.Steps)/fine, float64(x.Operands)/fine, float64(x.Shared.Taken)/fine)
		require.Equal(t, x.Shared.Least, x.Shared.Taken)
		require.Equal(t, 32*x.Stores.Sectors, x.Stores.Bytes)
		require.LessOrEqual(t, float64(x.Steps)/fine, most)
		require.LessOrEqual(t, float64(x.Operands)/fine, 80.0)
	}
}

func TestAttentionByProductsOfFourWarpsReadsWhatAProductOfTokensMakesWhereverItLies(t *testing.T) {
	g, r := hopper(t, nil), rand.New(rand.NewPCG(4, 90))
	const b, n, h, e = 2, 70, 2, 64
	joined := kernels.Type{Dtype: device.BFloat16, Shape: device.Shape{b, n, 3 * h * e}}
	var views []*kernels.View
	for k := range 3 {
		views = append(views, &kernels.View{Shape: device.Shape{b, n, h, e}, Offset: k * h * e, Strides: []int{3 * n * h * e, 3 * h * e, e, 1}})
	}
	of := kernels.Viewed{Of: kernels.Attention{Causal: true}, In: views}
	be, err := backends.For(g)
	require.NoError(t, err)
	k, err := be.Prepare(kernels.Narrow{Of: of, Outs: []bool{true}}, []kernels.Type{joined, joined, joined})
	require.NoError(t, err)
	y, sums := kernels.Type{Dtype: device.BFloat16, Shape: device.Shape{b, n, h, e}}, kernels.Type{Dtype: device.Float32, Shape: device.Shape{b, h, n}}
	buffer := func(bytes []byte) *device.Buffer {
		buf, err := g.Alloc(len(bytes))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, buf.Release()) })
		require.NoError(t, g.Upload(buf, 0, bytes))
		return buf
	}
	var tokens []kerneltest.Tensor
	var ins, outs []*device.Buffer
	for range 2 {
		x := rounded([]kerneltest.Tensor{scaled(drawn(r, device.Float32, joined.Shape...), 0.5)}, 16)[0]
		tokens, ins = append(tokens, x), append(ins, buffer(encoded(t, device.BFloat16, x.V)))
		outs = append(outs, buffer(make([]byte, y.Bytes())))
	}
	logs := buffer(make([]byte, sums.Bytes()))
	for _, at := range []int{0, 1, 0} {
		require.NoError(t, g.Upload(outs[at], 0, make([]byte, y.Bytes())))
		require.NoError(t, k.Run([]*device.Buffer{outs[at], logs}, []*device.Buffer{ins[at], ins[at], ins[at]}))
		raw, more := make([]byte, y.Bytes()), make([]byte, sums.Bytes())
		require.NoError(t, errors.Join(g.Download(raw, outs[at], 0), g.Download(more, logs, 0)))
		near(t, []kerneltest.Tensor{decoded(y, raw), decoded(sums, more)}, results(t, device.Host(), of, tokens[at], tokens[at], tokens[at]))
	}
	times, why := byHoppers(g)
	require.EqualValues(t, 1, times)
	require.Empty(t, why)
}

// counting is a machine that counts the maps that it encodes.
type counting struct {
	*ptx.Machine
	n int
}

func (m *counting) EncodeMap(x cuda.TensorMap) ([cuda.MapBytes]byte, error) {
	m.n++
	return m.Machine.EncodeMap(x)
}

func TestAMapIsEncodedAgainWhereWhatItDescribesLiesElsewhere(t *testing.T) {
	m := &counting{Machine: ptxtest.New(ptx.Config{})}
	g := hopper(t, m)
	f := &frame{of: &sequence{backend: g.Memory().(*memory).backend}}
	f.list.Add(nil, [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 0)
	f.list.U32(7)
	tiles := &cuda.TensorMap{Extents: [4]uint64{64, 2, 3, 1}, Strides: [3]uint64{128, 256, 768}, Box: [4]uint32{64, 1, 64, 1}}
	p := patch{off: f.list.Block(cuda.MapBytes), tiles: tiles}
	for k, at := range []uintptr{1 << 20, 1 << 20, 1 << 21, 1 << 20} {
		require.NoError(t, f.encode(p, at))
		require.Equal(t, []int{1, 1, 2, 3}[k], m.n)
		want := *tiles
		want.At = at
		raw, err := m.Machine.EncodeMap(want)
		require.NoError(t, err)
		require.Equal(t, raw[:], f.list.Args[p.off:])
	}
	require.ErrorContains(t, f.encode(p, 8), "address")
}

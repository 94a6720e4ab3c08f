package program

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/kernels"
	backends "github.com/weft-project/weft/kernels/backend"
)

// run computes an instruction on bytes.
func run(t testing.TB, i kernels.Instr, types []kernels.Type, in [][]byte) [][]byte {
	t.Helper()
	host := device.Host()
	backend, err := backends.For(host)
	require.NoError(t, err)
	k, err := backend.Prepare(i, types)
	require.NoError(t, err)
	outs, err := i.Infer(types)
	require.NoError(t, err)
	hold := func(n int) *device.Buffer {
		b, err := host.Alloc(n)
		require.NoError(t, err)
		return b
	}
	var ins, to []*device.Buffer
	for _, x := range in {
		ins = append(ins, hold(len(x)))
		require.NoError(t, host.Upload(ins[len(ins)-1], 0, x))
	}
	for _, o := range outs {
		to = append(to, hold(o.Bytes()))
	}
	require.NoError(t, k.Run(to, ins))
	var got [][]byte
	for _, b := range to {
		raw := make([]byte, b.Len())
		require.NoError(t, host.Download(raw, b, 0))
		got = append(got, raw)
	}
	for _, b := range append(ins, to...) {
		require.NoError(t, b.Release())
	}
	return got
}

// oracle gives every value a memory of its own and runs one instruction after the other.
func oracle(t testing.TB, u *Unit, in [][]byte) [][]byte {
	t.Helper()
	mem := make([][]byte, len(u.Types))
	for k, v := range u.Given {
		mem[v] = in[k]
	}
	for _, i := range u.Insts {
		var ins [][]byte
		for _, v := range i.In {
			ins = append(ins, mem[v])
		}
		for k, raw := range run(t, i.Instr, u.typesOf(i.In), ins) {
			mem[i.Out[k]] = raw
		}
	}
	var out [][]byte
	for _, v := range u.Results {
		out = append(out, mem[v])
	}
	return out
}

// planned runs the calls of a plan in the places that it gives, which begin as garbage.
func planned(t testing.TB, u *Unit, p *plan, in [][]byte) [][]byte {
	t.Helper()
	bufs := make([][]byte, len(p.bufs))
	for k, n := range p.bufs {
		bufs[k] = make([]byte, n)
		for j := range bufs[k] {
			bufs[k][j] = 0xff
		}
		if k < len(in) {
			require.False(t, p.written[k])
			copy(bufs[k], in[k])
		}
	}
	at := func(p kernels.Place) []byte { return bufs[p.Buf][p.Off:][:p.Len] }
	for _, c := range p.calls {
		var ins [][]byte
		for _, x := range c.Ins {
			ins = append(ins, at(x))
		}
		for k, raw := range run(t, c.Instr, c.In, ins) {
			require.True(t, p.written[c.Outs[k].Buf], "an input is written")
			require.Equal(t, len(raw), copy(at(c.Outs[k]), raw))
		}
	}
	for k := range in {
		require.True(t, bytes.Equal(in[k], bufs[k]), "an input has changed")
	}
	var out [][]byte
	for _, b := range p.results {
		out = append(out, bufs[b])
	}
	return out
}

// randomUnit grows a unit of vectors and scalars, with reshapes, sums and results that repeat or
// are given.
func randomUnit(r *rand.Rand) *Unit {
	u := &Unit{Name: "random"}
	shapes := []device.Shape{{6}, {2, 3}, {}, {0}, {6, 1}}
	for range 1 + r.IntN(3) {
		u.Input(kernels.Type{Dtype: device.Float64, Shape: shapes[r.IntN(len(shapes))]})
	}
	pick := func() Value { return Value(r.IntN(len(u.Types))) }
	for n := r.IntN(25); n > 0; n-- {
		x := pick()
		var err error
		switch r.IntN(6) {
		case 0, 1:
			_, err = u.Apply(kernels.Unary{Fn: []kernels.UnaryFn{kernels.Neg, kernels.Tanh, kernels.Sigmoid}[r.IntN(3)]}, x)
		case 2, 3:
			_, err = u.Apply(kernels.Binary{Fn: kernels.BinaryFn(r.IntN(3))}, x, pick())
		case 4:
			s := device.Shape{u.Types[x].Shape.Elems()}
			_, err = u.Apply(kernels.Reshape{Shape: s}, x)
		case 5:
			_, err = u.Apply(kernels.Reduce{Fn: kernels.Sum}, x)
		}
		_ = err // operands that do not fit are left out
	}
	for range 1 + r.IntN(4) {
		u.Results = append(u.Results, pick())
	}
	return u
}

func randomInputs(r *rand.Rand, u *Unit) [][]byte {
	var in [][]byte
	for _, v := range u.Given {
		x := make([]float64, u.Types[v].Shape.Elems())
		for k := range x {
			x[k] = r.NormFloat64()
		}
		in = append(in, device.Bytes(x))
	}
	return in
}

// largest are bounds above, between and below the sizes of random units.
var largest = []int{ownBuffer, 20, 1}

func TestAPlanComputesWhatSeparateMemoryComputes(t *testing.T) {
	for seed := range soak.Cases(400) {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		u := randomUnit(r)
		require.NoError(t, u.Check())
		in := randomInputs(r, u)
		want, p := oracle(t, u, in), lay(u, largest[seed%len(largest)])
		for k, got := range planned(t, u, p, in) {
			require.True(t, bytes.Equal(want[k], got), "seed %d, result %d of\n%v\n%+v", seed, k, u, p)
		}
	}
}

func vectors(n int) kernels.Type { return kernels.Type{Dtype: device.Float32, Shape: device.Shape{n}} }

func apply(t testing.TB, u *Unit, i kernels.Instr, in ...Value) Value {
	t.Helper()
	out, err := u.Apply(i, in...)
	require.NoError(t, err)
	return out[0]
}

func TestAChainOfElementwiseInstructionsNeedsNoArena(t *testing.T) {
	u := &Unit{}
	x := u.Input(vectors(100))
	for range 10 {
		x = apply(t, u, kernels.Unary{Fn: kernels.Tanh}, x)
		x = apply(t, u, kernels.Reshape{Shape: device.Shape{100}}, x)
	}
	u.Results = []Value{x}
	p := lay(u, ownBuffer)
	require.Zero(t, p.arena)
	require.Equal(t, []int{400, 400}, p.bufs)
}

func TestMemoryIsUsedAgainWhenItsValueHasEnded(t *testing.T) {
	u := &Unit{}
	x := u.Input(kernels.Type{Dtype: device.Float32, Shape: device.Shape{16, 16}})
	for range 9 {
		x = apply(t, u, kernels.MatMul{}, x, x)
	}
	u.Results = []Value{apply(t, u, kernels.Reduce{Fn: kernels.Sum}, x)}
	require.Equal(t, 2*16*16*4, lay(u, ownBuffer).arena)
}

func TestAPlanOfThousandsOfInstructionsIsMadeInTimeThatGrowsWithThem(t *testing.T) {
	u := &Unit{}
	x, y := u.Input(vectors(64)), u.Input(kernels.Type{Dtype: device.Float32, Shape: device.Shape{64, 1}})
	for k := range 20_000 {
		z := apply(t, u, kernels.Binary{Fn: kernels.Add}, x, x)
		if k%7 == 0 {
			z = apply(t, u, kernels.Reduce{Fn: kernels.Max, Axes: []int{0}}, apply(t, u, kernels.Binary{Fn: kernels.Mul}, z, y))
		}
		x = z
	}
	u.Results = []Value{x}
	require.Less(t, lay(u, ownBuffer).arena, 1<<20, fmt.Sprint(len(u.Insts)))
}

// recorder is a backend to which few long routines are better.
type recorder struct {
	kernels.Backend
	own int
}

func (r recorder) OwnBuffer() int { return r.own }

func TestAProgramIsCutAtWhatItsBackendCallsLarge(t *testing.T) {
	parts := func(b kernels.Backend) int {
		u := &Unit{Name: "layers"}
		x := u.Input(kernels.Type{Dtype: device.Float32, Shape: device.Shape{256, 256}})
		for range 5 {
			x = apply(t, u, kernels.MatMul{}, x, u.Given[0])
		}
		u.Results = []Value{x}
		p, err := Compile(u, b)
		require.NoError(t, err)
		return len(p.parts)
	}
	require.Equal(t, 5, parts(backend(t)), "each product begins or ends a value of 256 KiB")
	require.Equal(t, 5, parts(recorder{backend(t), 1 << 18}))
	require.Equal(t, 1, parts(recorder{backend(t), 1<<18 + 1}))
}

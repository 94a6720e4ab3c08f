package program

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/kernels"
	backends "github.com/weft-project/weft/kernels/backend"
)

// hold puts bytes into buffers of the host.
func hold(t testing.TB, in [][]byte) []*device.Buffer {
	t.Helper()
	var bufs []*device.Buffer
	for _, x := range in {
		b, err := device.Host().Alloc(len(x))
		require.NoError(t, err)
		require.NoError(t, device.Host().Upload(b, 0, x))
		bufs = append(bufs, b)
	}
	return bufs
}

func drop(t testing.TB, bufs []*device.Buffer) {
	t.Helper()
	for _, b := range bufs {
		require.NoError(t, b.Release())
	}
}

func backend(t testing.TB) kernels.Backend {
	t.Helper()
	b, err := backends.For(device.Host())
	require.NoError(t, err)
	return b
}

func TestAProgramAsItIsGivesTheBitsOfItsInstructionsOneByOne(t *testing.T) {
	before := device.Host().Stats().Live
	for seed := range soak.Cases(300) {
		r := rand.New(rand.NewPCG(uint64(seed), 2))
		u := randomUnit(r)
		raw := randomInputs(r, u)
		want := oracle(t, u, raw)
		p, err := assemble(u, backend(t), largest[seed%len(largest)])
		require.NoError(t, err)
		in, out := hold(t, raw), make([]*device.Buffer, len(u.Results))
		for n := range 3 {
			spend := 0
			if n == 2 {
				spend = r.IntN(len(in) + 1)
			}
			require.NoError(t, p.Spend(device.Host(), in, out, spend))
			for k, b := range in {
				require.Equal(t, k < spend, b == nil)
			}
			for k, b := range out {
				got := make([]byte, b.Len())
				require.NoError(t, device.Host().Download(got, b, 0))
				require.Equal(t, string(want[k]), string(got), "seed %d, result %d of\n%v", seed, k, u)
				require.Equal(t, u.Types[u.Results[k]], p.Types()[k])
			}
			drop(t, out)
		}
		drop(t, slices.DeleteFunc(in, func(b *device.Buffer) bool { return b == nil }))
	}
	require.Equal(t, before, device.Host().Stats().Live)
}

// broken is a backend whose routines fail.
type broken struct {
	kernels.Backend
	err error
}

func (b broken) Assemble([]kernels.Call, []int, []bool) (kernels.Routine, error) { return b, nil }
func (b broken) Run([]*device.Buffer) error                                      { return b.err }

func TestAnErrorNamesTheInstructionAndFreesTheMemory(t *testing.T) {
	before := device.Host().Stats().Live
	cause := errors.New("oh")
	u := &Unit{Name: "f"}
	x := u.Input(vectors(4))
	y := apply(t, u, kernels.Reduce{Fn: kernels.Sum}, apply(t, u, kernels.Unary{Fn: kernels.Exp}, x))
	u.Results = []Value{y}
	p, err := assemble(u, broken{err: &kernels.CallError{At: 1, Instr: u.Insts[1].Instr, Err: cause}}, ownBuffer)
	require.NoError(t, err)
	in, out := hold(t, [][]byte{make([]byte, 16)}), make([]*device.Buffer, 1)
	err = p.Run(device.Host(), in, out)
	require.ErrorIs(t, err, cause)
	var at *kernels.CallError
	require.ErrorAs(t, err, &at)
	require.Equal(t, u.Insts[1].Instr, at.Instr)
	require.EqualError(t, err, "instruction 1: oh")
	require.Nil(t, out[0])
	drop(t, in)
	require.Equal(t, before, device.Host().Stats().Live)
}

func TestTheOnlyInstructionOfAProgramSpeaksForItself(t *testing.T) {
	cause := errors.New("oh")
	u := &Unit{Name: "f"}
	u.Results = []Value{apply(t, u, kernels.Unary{Fn: kernels.Exp}, u.Input(vectors(4)))}
	p, err := assemble(u, broken{err: &kernels.CallError{Instr: u.Insts[0].Instr, Err: cause}}, ownBuffer)
	require.NoError(t, err)
	in := hold(t, [][]byte{make([]byte, 16)})
	defer drop(t, in)
	require.Equal(t, cause, p.Run(device.Host(), in, make([]*device.Buffer, 1)))
}

// TestAProgramOnTheHostsMemoryGivesTheSameBits runs random units with every result, where it may,
// written over an input.
func TestAProgramOnTheHostsMemoryGivesTheSameBits(t *testing.T) {
	over, between := 0, 0
	for seed := range soak.Cases(600) {
		r := rand.New(rand.NewPCG(uint64(seed), 3))
		u := randomUnit(r)
		raw := randomInputs(r, u)
		want := oracle(t, u, raw)
		p, err := assemble(u, backend(t), largest[seed%len(largest)])
		require.NoError(t, err)
		h := p.Host()
		if len(p.parts) > 1 {
			require.Nil(t, h)
			continue
		}
		require.NotNil(t, h)
		if len(h.between) > 0 && h.between[0] != p.plan.arena {
			between++
		}
		for _, reuse := range []bool{false, true} {
			mem := make([][]byte, 0, len(p.plan.bufs))
			for _, x := range raw {
				mem = append(mem, append(make([]byte, 0, len(x)+8), x...))
			}
			taken := map[int]bool{}
			for m, n := range h.Made {
				if k := h.Over[m]; reuse && k >= 0 {
					require.False(t, taken[k], "an input is written over once")
					require.Len(t, mem[k], n)
					taken[k], over = true, over+1
					mem = append(mem, mem[k])
				} else {
					mem = append(mem, make([]byte, n))
				}
			}
			require.NoError(t, h.Run(mem))
			for k, at := range h.Results {
				require.Equal(t, string(want[k]), string(mem[at]), "seed %d, result %d of\n%v", seed, k, u)
			}
			for k, x := range raw {
				if !taken[k] {
					require.Equal(t, string(x), string(mem[k]), "seed %d, input %d of\n%v", seed, k, u)
				}
			}
		}
	}
	require.Greater(t, over, 20, "the test has something to test")
	require.Greater(t, between, 5, "some plans have a buffer that is neither an input nor a result nor the arena")
}

func TestAProgramThatNeedsMuchMemoryBetweenInputsAndResultsDoesNotRunOnTheHostsMemory(t *testing.T) {
	const row, own = 256, ownBuffer / 256
	for n, want := range map[int]bool{1: true, maxSpare / row: true, maxSpare/row + 1: false, own - 1: false, own: false, own + 1: false} {
		u := &Unit{Name: "f"}
		column, line := kernels.Type{Dtype: device.Float32, Shape: device.Shape{n, 1}}, kernels.Type{Dtype: device.Float32, Shape: device.Shape{1, row / 4}}
		x := apply(t, u, kernels.MatMul{}, u.Input(column), u.Input(line))
		u.Results = []Value{apply(t, u, kernels.Reduce{}, x)}
		p, err := assemble(u, backend(t), ownBuffer)
		require.NoError(t, err)
		require.Len(t, p.parts, 1, "one value begins with the first instruction and ends with the last")
		require.Equal(t, want, p.Host() != nil, "of %d rows", n)
	}
}

func TestTheMemoryThatAPlanSpeaksOfIsWhatARunNeeds(t *testing.T) {
	for seed := range soak.Cases(100) {
		r := rand.New(rand.NewPCG(uint64(seed), 3))
		u := randomUnit(r)
		p, err := assemble(u, backend(t), largest[seed%len(largest)])
		require.NoError(t, err)
		raw, inputs := randomInputs(r, u), 0
		for _, x := range raw {
			inputs += len(x)
		}
		on := func(bytes, own int) error {
			dev := device.NewSim(device.SimConfig{Bytes: int64(bytes)})
			var in []*device.Buffer
			for _, x := range raw {
				b, err := dev.Alloc(len(x))
				require.NoError(t, err)
				require.NoError(t, dev.Upload(b, 0, x))
				in = append(in, b)
			}
			out := make([]*device.Buffer, len(u.Results))
			err := p.Spend(dev, in, out, own)
			if err == nil {
				drop(t, out)
			}
			drop(t, in[own:])
			require.Zero(t, dev.Stats().Live)
			return err
		}
		need := p.Peak(p.plan.inputs, itself)
		require.NoError(t, on(inputs+max(need, 1), 0), "seed %d:\n%v", seed, u)
		if need > 0 && inputs > 0 {
			require.ErrorIs(t, on(inputs+need-1, 0), device.ErrMemory, "seed %d:\n%v", seed, u)
		}
		if need = p.Peak(0, itself); need > 0 {
			require.NoError(t, on(need, len(raw)), "seed %d:\n%v", seed, u)
		}
		if need > max(inputs, 1) {
			require.ErrorIs(t, on(need-1, len(raw)), device.ErrMemory, "seed %d:\n%v", seed, u)
		}
	}
}

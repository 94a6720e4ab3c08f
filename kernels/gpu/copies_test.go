package gpu

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/kernels"
	backends "github.com/weft-project/weft/kernels/backend"
)

// narrowings is how many copies a routine makes.
func narrowings(r kernels.Routine) (n int) {
	for _, l := range r.(*routine).launches {
		if l.Func.Name() == "narrow" {
			n++
		}
	}
	return n
}

// slots is square matrices, one after another in one buffer.
const slotSide, slotCount = 16, 5

var slot = kernels.Type{Dtype: device.Float32, Shape: device.Shape{slotSide, slotSide}}

func slotPlace(k int) kernels.Place { return kernels.Place{Off: k * slot.Bytes(), Len: slot.Bytes()} }

// times is slot to = op(a)·op(b).
func times(to, a, b, turns int) kernels.Call {
	return kernels.Call{Instr: kernels.MatMul{TransA: turns&1 != 0, TransB: turns&2 != 0}, In: []kernels.Type{slot, slot},
		Outs: []kernels.Place{slotPlace(to)}, Ins: []kernels.Place{slotPlace(a), slotPlace(b)}}
}

// bend writes a slot in place.
func bend(k int) kernels.Call {
	at := []kernels.Place{slotPlace(k)}
	return kernels.Call{Instr: kernels.Unary{Fn: kernels.Tanh}, In: []kernels.Type{slot}, Outs: at, Ins: at}
}

// straddle writes the end of a slot and the beginning of the next.
func straddle(k int) kernels.Call {
	at := []kernels.Place{{Off: slotPlace(k).Off + slot.Bytes()/2, Len: slot.Bytes()}}
	return kernels.Call{Instr: kernels.Unary{Fn: kernels.Scale, C: 0.5}, In: []kernels.Type{slot}, Outs: at, Ins: at}
}

func assembled(t *testing.T, d device.Device, calls ...kernels.Call) kernels.Routine {
	b, err := backends.For(d)
	require.NoError(t, err)
	r, err := b.Assemble(calls, []int{slotCount * slot.Bytes()}, []bool{true})
	require.NoError(t, err)
	return r
}

func TestAnOperandIsRoundedOnceUntilItIsWritten(t *testing.T) {
	d := brief(t, ptxtest.New(ptx.Config{}))
	for _, c := range []struct {
		calls []kernels.Call
		want  int
	}{
		{[]kernels.Call{times(2, 0, 1, 0)}, 2},
		{[]kernels.Call{times(2, 0, 0, 2)}, 1},
		{[]kernels.Call{times(2, 0, 1, 0), times(3, 0, 1, 3), times(4, 1, 0, 1)}, 2},
		{[]kernels.Call{times(2, 0, 1, 0), times(3, 2, 1, 0)}, 3},
		{[]kernels.Call{times(2, 0, 1, 0), bend(0), times(3, 0, 1, 0)}, 3},
		{[]kernels.Call{times(2, 0, 1, 0), bend(3), times(3, 0, 1, 0)}, 2},
		{[]kernels.Call{times(2, 0, 1, 0), straddle(0), times(3, 0, 1, 0)}, 4},
		{[]kernels.Call{times(2, 0, 1, 0), times(0, 2, 1, 0), times(3, 0, 1, 0)}, 4},
	} {
		require.Equal(t, c.want, narrowings(assembled(t, d, c.calls...)), "%v", c.calls)
	}
}

func TestARoutineWithSharedCopiesIsAsItsInstructionsOneByOne(t *testing.T) {
	devices, count := map[string]*device.Accelerator{"e4m3": inEights(t)}, func(r kernels.Routine) int { return narrowings(r) + quantizings(r) }
	for name, driver := range libraries(t) {
		devices[name] = brief(t, driver)
	}
	for name, d := range devices {
		r := rand.New(rand.NewPCG(7, 1))
		shared := 0
		for range 25 {
			var calls []kernels.Call
			products := 0
			for range 12 {
				k := r.IntN(slotCount)
				switch r.IntN(5) {
				case 0:
					calls = append(calls, bend(k))
				case 1:
					calls = append(calls, straddle(r.IntN(slotCount-1)))
				default:
					a, b := (k+1+r.IntN(slotCount-1))%slotCount, (k+1+r.IntN(slotCount-1))%slotCount
					calls = append(calls, times(k, a, b, r.IntN(4)), bend(k))
					products++
				}
			}
			start := make([]float32, slotCount*slotSide*slotSide)
			for k := range start {
				start[k] = float32(r.NormFloat64())
			}
			one := func(rs ...kernels.Routine) []float32 {
				b, err := d.Alloc(4 * len(start))
				require.NoError(t, err)
				require.NoError(t, d.Upload(b, 0, device.Bytes(start)))
				for _, r := range rs {
					require.NoError(t, r.Run([]*device.Buffer{b}))
				}
				got := make([]float32, len(start))
				require.NoError(t, d.Download(device.Bytes(got), b, 0))
				require.NoError(t, b.Release())
				return got
			}
			var apart []kernels.Routine
			for _, c := range calls {
				apart = append(apart, assembled(t, d, c))
			}
			whole := assembled(t, d, calls...)
			shared += 2*products - count(whole)
			require.Equal(t, one(apart...), one(whole), "%s: %v", name, calls)
		}
		require.Greater(t, shared, 100, "%s: copies that were there", name)
	}
}

// A copy in bfloat16 begins as a larger one of the same does; one in e4m3 does not.
func TestCopiesOfScratchShareAPlaceInOneFormAlone(t *testing.T) {
	var c code
	at := func(f form) uint64 {
		to, _ := c.copy(nil, 1, 1, scratchArg(512), f)
		return to.value
	}
	forms := []form{{bytes: 600, reads: 1200}, {bytes: 600, reads: 512, rows: 16, ld: 32}, {bytes: 300, reads: 256, rows: 8, ld: 32}, {bytes: 600, reads: 512, rows: 16, ld: 32, across: true}}
	seen := map[uint64]bool{}
	for _, f := range forms {
		seen[at(f)] = true
	}
	require.Len(t, seen, len(forms))
	for _, f := range forms {
		require.Contains(t, seen, at(f), "the place that it had")
	}
	require.Equal(t, at(forms[0]), at(form{bytes: 400, reads: 800}))
	require.NotContains(t, seen, at(form{bytes: 1000, reads: 2000}), "there is no room")
}

func TestCopiesThatAreNeededTogetherLieApart(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 2))
	saved := 0
	for range 300 {
		var c copies
		first, sum := 0, 0
		for range 1 + r.IntN(20) {
			first += r.IntN(3)
			n := 2 * (1 + r.IntN(2000))
			c.all = append(c.all, copied{form: form{bytes: n / 2}, of: spot{n: n}, first: first, last: first + r.IntN(8)})
			sum += (n/2 + 255) &^ 255
		}
		end := c.arrange(512)
		for k, x := range c.all {
			require.Zero(t, x.at%256)
			require.GreaterOrEqual(t, x.at, 512)
			require.LessOrEqual(t, x.at+x.of.n/2, end)
			for _, y := range c.all[:k] {
				together := x.first <= y.last && y.first <= x.last
				require.False(t, together && x.at < y.at+y.of.n/2 && y.at < x.at+x.of.n/2, "%+v and %+v", x, y)
			}
		}
		require.LessOrEqual(t, end, 512+sum)
		if end < 512+sum {
			saved++
		}
	}
	require.Greater(t, saved, 100, "memory is used again")
}

// quantizings is how many copies in e4m3 a routine makes.
func quantizings(r kernels.Routine) (n int) {
	for _, l := range r.(*routine).launches {
		switch l.Func.Name() {
		case "along_f", "across_f", "along_b", "across_b":
			n++
		}
	}
	return n
}

// inEights makes a device that multiplies slots in e4m3.
func inEights(t *testing.T) *device.Accelerator {
	acc, err := Config{Precision: FP8, FP8From: 1}.On(ptxtest.NewLibrary(t, ptx.Config{}), device.CUDA(0))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, acc.Close()) })
	return acc
}

func TestAFactorIsQuantizedOnceInEachDirectionUntilItIsWritten(t *testing.T) {
	d := inEights(t)
	for _, c := range []struct {
		calls []kernels.Call
		want  int
	}{
		{[]kernels.Call{times(2, 0, 1, 0)}, 2},
		{[]kernels.Call{times(2, 0, 0, 0)}, 2}, // along its rows, and along its columns
		{[]kernels.Call{times(2, 0, 0, 2)}, 1},
		{[]kernels.Call{times(2, 0, 1, 0), times(3, 0, 1, 3), times(4, 1, 0, 1)}, 4},
		{[]kernels.Call{times(2, 0, 1, 0), times(3, 0, 1, 0)}, 2},
		{[]kernels.Call{times(2, 0, 1, 0), bend(0), times(3, 0, 1, 0)}, 3},
		{[]kernels.Call{times(2, 0, 1, 0), bend(3), times(3, 0, 1, 0)}, 2},
		{[]kernels.Call{times(2, 0, 1, 0), straddle(0), times(3, 0, 1, 0)}, 4},
		{[]kernels.Call{times(2, 0, 1, 0), times(0, 2, 1, 0), times(3, 0, 1, 0)}, 4},
	} {
		q := assembled(t, d, c.calls...)
		require.Equal(t, c.want, quantizings(q), "%v", c.calls)
		require.Zero(t, narrowings(q))
	}
}

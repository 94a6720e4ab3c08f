package gpu

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	backends "github.com/weft-project/weft/kernels/backend"
)

// placed is numbers on a device.
func placed[T device.Number](t *testing.T, d device.Device, v ...T) *device.Buffer {
	b, err := d.Alloc(len(v) * len(device.Bytes(make([]T, 1))))
	require.NoError(t, err)
	require.NoError(t, d.Upload(b, 0, device.Bytes(v)))
	t.Cleanup(func() { _ = b.Release() })
	return b
}

// told is what a device says when it is asked.
func told(t *testing.T, d device.Device) error {
	return d.(*device.Accelerator).Check()
}

// submit runs an instruction, and looks at nothing.
func submit(t *testing.T, d device.Device, i kernels.Instr, types []kernels.Type, outs, ins []*device.Buffer) {
	require.NoError(t, try(t, d, i, types, outs, ins))
}

func try(t *testing.T, d device.Device, i kernels.Instr, types []kernels.Type, outs, ins []*device.Buffer) error {
	b, err := backends.For(d)
	require.NoError(t, err)
	k, err := b.Prepare(i, types)
	require.NoError(t, err)
	return k.Run(outs, ins)
}

// peek reads what a buffer holds, whatever is known to be wrong with it.
func peek[T device.Number](t *testing.T, d device.Device, b *device.Buffer) []T {
	g := d.(*device.Accelerator).Memory().(*memory).GPU
	require.NoError(t, g.Sync())
	mem, err := g.Driver().Pin(b.Len())
	require.NoError(t, err)
	s, err := g.Driver().Stream()
	require.NoError(t, err)
	require.NoError(t, errors.Join(s.CopyOut(mem, b.Addr()), s.Sync()))
	v := make([]T, b.Len()/len(device.Bytes(make([]T, 1))))
	copy(device.Bytes(v), mem)
	require.NoError(t, errors.Join(s.Close(), g.Driver().Unpin(mem)))
	return v
}

func valuesOf[T device.Number](t *testing.T, d device.Device, b *device.Buffer) []T {
	v := make([]T, b.Len()/len(device.Bytes(make([]T, 1))))
	require.NoError(t, d.Download(device.Bytes(v), b, 0))
	return v
}

func some[T device.Number](n int, at func(k int) float64) []T {
	v := make([]T, n)
	for k := range v {
		v[k] = T(at(k))
	}
	return v
}

// floats is a type for a test of either dtype.
func floats[T device.Number](s ...int) kernels.Type {
	d := device.Float64
	if _, ok := any(T(0)).(float32); ok {
		d = device.Float32
	}
	return kernels.Type{Dtype: d, Shape: s}
}

func TestWhatARowThatIsNotThereGivesIsNaN(t *testing.T) {
	t.Run("float32", badRowsAreNaN[float32])
	t.Run("float64", badRowsAreNaN[float64])
}

func badRowsAreNaN[T device.Number](t *testing.T) {
	d := machine(t)
	isNaN := func(v T) bool { return math.IsNaN(float64(v)) }
	for _, n := range []int{3, 8, 600} {
		x := placed(t, d, some[T](3*n, func(k int) float64 { return float64(k%7) / 8 })...)
		in := []kernels.Type{floats[T](3, n), {Dtype: device.Int64, Shape: device.Shape{4}}}
		out := placed(t, d, make([]T, 4*n)...)
		submit(t, d, kernels.Gather{}, in, []*device.Buffer{out}, []*device.Buffer{x, placed[int64](t, d, 1, -1, 0, 3)})
		require.ErrorIs(t, told(t, d), kernels.ErrIndex)
		rows := peek[T](t, d, out)
		for k, v := range rows {
			require.Equal(t, k/n == 1 || k/n == 3, isNaN(v), "row %d", k/n)
		}
		require.Equal(t, valuesOf[T](t, d, x)[n:2*n], rows[:n])

		in[1] = kernels.Type{Dtype: device.Int32, Shape: device.Shape{3}}
		labels, mean, grad := placed[int32](t, d, 0, int32(n), -7), placed[T](t, d, 0), placed(t, d, make([]T, 3*n)...)
		submit(t, d, kernels.CrossEntropy{}, in, []*device.Buffer{mean}, []*device.Buffer{x, labels})
		require.ErrorIs(t, told(t, d), kernels.ErrIndex)
		require.True(t, isNaN(peek[T](t, d, mean)[0]))
		submit(t, d, kernels.CrossEntropyGrad{}, append(in, floats[T]()), []*device.Buffer{grad}, []*device.Buffer{x, labels, placed[T](t, d, 1)})
		require.ErrorIs(t, told(t, d), kernels.ErrIndex)
		rows = peek[T](t, d, grad)
		require.False(t, slices.ContainsFunc(rows[:n], isNaN))
		require.False(t, slices.ContainsFunc(rows[n:], func(v T) bool { return !isNaN(v) }))
	}
}

func TestStepsByWhatCameOfAFaultChangeNothing(t *testing.T) {
	t.Run("float32", stepsWait[float32])
	t.Run("float64", stepsWait[float64])
}

const stepRows, stepWidth = 5, 7

// gathered is rows of a gradient, of which one is not there, if bad.
func gathered[T device.Number](t *testing.T, d device.Device, n int, bad bool) *device.Buffer {
	ids := []int32{1, 2, 3, 4, 0}[:n]
	if bad {
		ids[1] = stepRows
	}
	grads := some[T](stepRows*stepWidth, func(k int) float64 { return 1 + float64(k%3) })
	out := placed(t, d, make([]T, n*stepWidth)...)
	submit(t, d, kernels.Gather{}, []kernels.Type{floats[T](stepRows, stepWidth), {Dtype: device.Int32, Shape: device.Shape{n}}},
		[]*device.Buffer{out}, []*device.Buffer{placed(t, d, grads...), placed(t, d, ids...)})
	return out
}

func stepsWait[T device.Number](t *testing.T) {
	d := machine(t)
	params := some[T](stepRows*stepWidth, func(k int) float64 { return float64(k) - 9 })
	f := floats[T](stepRows, stepWidth)
	adam := kernels.Update{Rule: kernels.Adam, AMSGrad: true, LR: 0.1, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, Step: 2}
	ids := kernels.Type{Dtype: device.Int32, Shape: device.Shape{3}}
	for name, c := range map[string]struct {
		instr   kernels.Instr
		in      []kernels.Type
		targets []int
	}{
		"SGD":  {kernels.Update{Rule: kernels.SGD, LR: 0.1, Step: 1}, []kernels.Type{f, f}, []int{0}},
		"Adam": {kernels.UpdateMany{Of: adam}, []kernels.Type{f, f, f, f, f, f, f, f, f, f}, []int{0, 2, 3, 4, 5, 7, 8, 9}},
		"sums": {kernels.OnRows{Of: adam, Sum: true}, []kernels.Type{f, floats[T](3, stepWidth), f, f, f, ids}, []int{0, 2, 3, 4}},
		"rows": {kernels.OnRows{Of: adam}, []kernels.Type{f, floats[T](3, stepWidth), f, f, f, ids}, []int{0, 2, 3, 4}},
	} {
		for _, inPlace := range []bool{false, true} {
			var ins, outs []*device.Buffer
			by := func(bad bool) {
				for k, typ := range c.in {
					if typ.Dtype != device.Int32 && !slices.Contains(c.targets, k) {
						ins[k] = gathered[T](t, d, typ.Shape[0], bad)
					}
				}
			}
			for _, typ := range c.in {
				if typ.Dtype == device.Int32 {
					ins = append(ins, placed[int32](t, d, 1, 4, 0))
				} else {
					ins = append(ins, placed(t, d, params...))
				}
			}
			for _, at := range c.targets {
				if inPlace {
					outs = append(outs, ins[at])
				} else {
					outs = append(outs, placed(t, d, make([]T, len(params))...))
				}
			}
			same := func() (n int) {
				for _, b := range outs {
					if slices.Equal(params, peek[T](t, d, b)) {
						n++
					}
				}
				return n
			}
			by(true)
			submit(t, d, c.instr, c.in, outs, ins)
			require.ErrorIs(t, told(t, d), kernels.ErrIndex)
			require.Equal(t, len(outs), same(), "%s: what was there is there still, in place: %v", name, inPlace)
			require.ErrorIs(t, try(t, d, c.instr, c.in, outs, ins), kernels.ErrIndex, "%s: by that it is never stepped", name)
			gathered[T](t, d, 3, true)
			by(false)
			submit(t, d, c.instr, c.in, outs, ins)
			require.ErrorIs(t, told(t, d), kernels.ErrIndex, "somebody else's")
			require.Zero(t, same(), "%s: the next step is one", name)
			require.NoError(t, d.Check(outs...))
		}
	}
}

// Bias corrections go by the steps that were made, also those by a gradient that has no rows.
func TestAStepThatIsLeftOutIsCountedHoweverManyRowsItHas(t *testing.T) {
	d := machine(t)
	adam := kernels.Update{Rule: kernels.Adam, LR: 0.1, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, Step: 9, Missed: true}
	f, of := floats[float32](stepRows, stepWidth), some[float32](stepRows*stepWidth, func(int) float64 { return 1 })
	for _, rows := range []int{0, 1, 3} {
		for _, sum := range []bool{false, true} {
			for bad, want := range map[bool]int64{false: 5, true: 6} {
				p, first, missed := placed(t, d, of...), gathered[float32](t, d, stepRows, bad), placed(t, d, int64(5))
				ins := []*device.Buffer{p, placed(t, d, make([]float32, rows*stepWidth)...), first, placed(t, d, of...), missed, placed(t, d, make([]int32, rows)...)}
				submit(t, d, kernels.OnRows{Of: adam, Sum: sum},
					[]kernels.Type{f, floats[float32](rows, stepWidth), f, f, {Dtype: device.Int64}, {Dtype: device.Int32, Shape: device.Shape{rows}}},
					[]*device.Buffer{p, first, ins[3], missed}, ins)
				require.Equal(t, bad, told(t, d) != nil)
				require.Equal(t, []int64{want}, peek[int64](t, d, missed), "%d rows", rows)
				require.Equal(t, bad || rows == 0, slices.Equal(of, peek[float32](t, d, p)), "%d rows", rows)
			}
		}
	}
}

func TestStepsThatWereLeftOutAreToldOnceToWhoStepsNext(t *testing.T) {
	d := machine(t)
	f := floats[float32](stepRows, stepWidth)
	sgd, in := kernels.Update{Rule: kernels.SGD, LR: 0.1, Step: 1}, []kernels.Type{f, f}
	w := placed(t, d, make([]float32, stepRows*stepWidth)...)
	submit(t, d, sgd, in, []*device.Buffer{w}, []*device.Buffer{w, gathered[float32](t, d, stepRows, true)})
	require.ErrorIs(t, told(t, d), kernels.ErrIndex)
	good := gathered[float32](t, d, stepRows, false)
	require.ErrorIs(t, try(t, d, sgd, in, []*device.Buffer{w}, []*device.Buffer{w, good}), kernels.ErrIndex)
	submit(t, d, sgd, in, []*device.Buffer{w}, []*device.Buffer{w, good})
	require.NoError(t, d.Check(w))
}

func TestSumsOfRowsOfWhatCameOfAFaultAreSpoiled(t *testing.T) {
	d := machine(t)
	ids := kernels.Type{Dtype: device.Int32, Shape: device.Shape{3}}
	for _, fn := range []kernels.BinaryFn{kernels.Add, kernels.Mul} {
		sums, fine := placed(t, d, make([]float32, stepRows*stepWidth)...), placed(t, d, make([]float32, stepRows*stepWidth)...)
		for _, c := range []struct {
			to  *device.Buffer
			bad bool
		}{{sums, true}, {fine, false}} {
			submit(t, d, kernels.OnRows{Of: kernels.Binary{Fn: fn}}, []kernels.Type{floats[float32](stepRows, stepWidth), floats[float32](3, stepWidth), ids},
				[]*device.Buffer{c.to}, []*device.Buffer{c.to, gathered[float32](t, d, 3, c.bad), placed[int32](t, d, 1, 4, 0)})
		}
		require.NoError(t, d.Check(fine), "also where it finds what is wrong with others")
		require.ErrorIs(t, d.Check(sums), kernels.ErrIndex)
		require.ErrorIs(t, d.Check(sums), kernels.ErrIndex)
	}
}

// lookups is a routine that gathers rows again and again, which becomes a graph; run runs it with
// an id.
func lookups(t *testing.T, d *device.Accelerator) (out *device.Buffer, run func(id int32)) {
	in := []kernels.Type{floats[float32](stepRows, stepWidth), {Dtype: device.Int32, Shape: device.Shape{stepRows}}}
	const n = 4 * stepRows * stepWidth
	calls := make([]kernels.Call, graphFrom)
	for k := range calls {
		calls[k] = kernels.Call{Instr: kernels.Gather{}, In: in, Outs: []kernels.Place{{Len: n}}, Ins: []kernels.Place{{Buf: 1, Len: n}, {Buf: 2, Len: 4 * stepRows}}}
	}
	b, err := backends.For(d)
	require.NoError(t, err)
	r, err := b.Assemble(calls, []int{n, n, 4 * stepRows}, []bool{true, false, false})
	require.NoError(t, err)
	out, table, ids := placed(t, d, make([]float32, n/4)...), placed(t, d, make([]float32, n/4)...), placed(t, d, make([]int32, stepRows)...)
	return out, func(id int32) {
		require.NoError(t, d.Upload(ids, 0, device.Bytes([]int32{id})))
		require.NoError(t, r.Run([]*device.Buffer{out, table, ids}))
	}
}

func TestProgramsThatAreReplayedAsGraphsAreNotTakenForOneAnother(t *testing.T) {
	d := machine(t)
	good, look := lookups(t, d)
	bad, meet := lookups(t, d)
	for range 3 {
		look(1)
		meet(1)
	}
	require.NoError(t, d.Check())
	for range 2 * 64 { // other runs that may meet a fault have their flags in turn
		gathered[float32](t, d, 1, false)
		look(2)
		meet(stepRows)
		require.NoError(t, d.Check(good))
		require.ErrorIs(t, d.Check(bad), kernels.ErrIndex)
	}
}

func TestRowsWithABadIDAreSteppedByNone(t *testing.T) {
	d := machine(t)
	f, ids := floats[float32](4, 2), kernels.Type{Dtype: device.Int64, Shape: device.Shape{3}}
	table := []float32{1, 2, 3, 4, 5, 6, 7, 8}
	for _, of := range []kernels.Instr{kernels.Binary{Fn: kernels.Add}, kernels.Update{Rule: kernels.SGD, LR: 1, Step: 1}} {
		b := placed(t, d, table...)
		submit(t, d, kernels.OnRows{Of: of}, []kernels.Type{f, floats[float32](3, 2), ids}, []*device.Buffer{b},
			[]*device.Buffer{b, placed[float32](t, d, 1, 1, 1, 1, 1, 1), placed[int64](t, d, 0, 4, 1)})
		require.ErrorIs(t, told(t, d), kernels.ErrIndex)
		require.Equal(t, table, peek[float32](t, d, b), "as on the host, where nothing is written before all ids are seen")
	}
}

// here is the line of the call, as errors name it.
func here() string {
	_, file, line, _ := runtime.Caller(1)
	return fmt.Sprintf("%s:%d", file, line)
}

func TestABadIndexIsToldWithTheLinesThatLatelyAskedForIt(t *testing.T) {
	d := machine(t)
	b, err := backends.For(d)
	require.NoError(t, err)
	lookUp := func(rows int) (k kernels.Kernel, table *device.Buffer) {
		k, err := b.Prepare(kernels.Gather{}, []kernels.Type{floats[float32](rows, 2), {Dtype: device.Int64, Shape: device.Shape{1}}})
		require.NoError(t, err)
		return k, placed[float32](t, d, make([]float32, 2*rows)...)
	}
	k, table := lookUp(4)
	other, wide := lookUp(5)
	out := []*device.Buffer{placed[float32](t, d, 0, 0)}
	right, wrong := []*device.Buffer{table, placed[int64](t, d, 3)}, []*device.Buffer{table, placed[int64](t, d, 4)}
	var at [2]string
	for n := range at {
		require.NoError(t, k.Run(out, right))
		require.NoError(t, told(t, d), "so it was not that line")
		require.NoError(t, other.Run(out, []*device.Buffer{wide, wrong[1]}), "nor that instruction")
		for range 3 {
			at[0], err = here(), k.Run(out, wrong)
			require.NoError(t, err)
		}
		text := ", called at " + at[0] + ": "
		if n > 0 {
			at[1], err = here(), k.Run(out, right)
			require.NoError(t, err)
			text = ", called at " + at[1] + " or " + at[0] + ": "
		}
		index, err := (*kernels.IndexError)(nil), told(t, d)
		require.ErrorAs(t, err, &index)
		require.Equal(t, kernels.IndexError{Instr: "Gather", ID: 4, N: 4}, *index)
		require.ErrorContains(t, err, text)
	}
}

func TestOfEverManyLinesTheLatestAreKept(t *testing.T) {
	var f faults
	code := f.code(kernels.Gather{}, nil, -1)
	for n := range 3 * lastCalls {
		f.note(&asked{codes: []uint64{code + uint64(n)}})
	}
	require.Len(t, f.calls, lastCalls)
	require.Empty(t, f.lines(code))
	require.NotEmpty(t, f.lines(code+3*lastCalls-1))
	require.NotEmpty(t, f.lines(code+2*lastCalls))
}

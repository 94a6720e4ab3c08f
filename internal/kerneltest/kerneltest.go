package kerneltest

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/thresholds"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
)

// extent is how much of everything a suite draws.
type extent struct {
	families           []string
	cases, wild, least int // of each family; of wild ones, and how many of those must have run
	routines           int
	large              []device.Dtype
	windows            int              // of large convolutions
	around             thresholds.Suite // 0 for none
	each               int              // families on each side of each threshold
}

// cases is how many cases each family is checked with.
const cases = 80

// RunSizes runs instructions of sizes around the thresholds of a CPU's kernels.
func RunSizes(t *testing.T, d device.Device) {
	before := d.Stats().Live
	checkSizes(t, d, extent{families: Families(), around: thresholds.Kernels, each: 2})
	require.Equal(t, before, d.Stats().Live, "buffers leak")
}

// Run runs the suite, but for [RunSizes], on the devices that newDevice gives. A device may be
// given more than once, but nothing else may allocate on it meanwhile: the suite checks that all
// buffers were released.
func Run(t *testing.T, newDevice func(t *testing.T) device.Device) {
	run(t, newDevice, extent{Families(), cases, 9000, 200, 60, []device.Dtype{device.Float32, device.Float64}, 4, 0, 0})
}

// RunFew is Run with fewer cases of each kind, for a device that is interpreted, and without
// families of instructions that it does not know.
func RunFew(t *testing.T, newDevice func(t *testing.T) device.Device, without ...string) {
	families := slices.DeleteFunc(Families(), func(f string) bool { return slices.Contains(without, f) })
	run(t, newDevice, extent{families, cases / 4, 2000, 40, 15, []device.Dtype{device.Float32}, 1, thresholds.GPU, 1})
}

func run(t *testing.T, newDevice func(t *testing.T) device.Device, e extent) {
	on := func(name string, fn func(t *testing.T, d device.Device)) {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t)
			before := d.Stats().Live
			fn(t, d)
			require.Equal(t, before, d.Stats().Live, "buffers leak")
		})
	}
	for k, family := range e.families {
		on(family+"AgreesWithItsDefinition", func(t *testing.T, d device.Device) {
			r := rand.New(rand.NewPCG(uint64(k), 1))
			for range e.cases {
				i, in := Case(r, family)
				Check(t, d, i, in...)
			}
		})
	}
	on("WhatInferAcceptsRuns", func(t *testing.T, d device.Device) {
		r := rand.New(rand.NewPCG(7, 7))
		ran := 0
		for range e.wild {
			if CheckWild(t, d, r) {
				ran++
			}
		}
		require.Greater(t, ran, e.least, "too few random instructions are accepted to show anything")
	})
	if e.around != 0 {
		on("SizesAroundThresholdsAgreeToo", func(t *testing.T, d device.Device) { checkSizes(t, d, e) })
	}
	on("LargeOperandsAgreeToo", func(t *testing.T, d device.Device) { checkLarge(t, d, e) })
	on("Float32SumsAreAccurate", checkAccuracy)
	on("ExtremeValuesStayStable", checkExtremes)
	on("ResultsMayLieOverOperandsWhereOverwritesSaysSo", func(t *testing.T, d device.Device) { checkInPlace(t, d, e) })
	on("BadIndicesAreNamed", checkIndices)
	on("BadBuffersAreRefused", checkBuffers)
	on("RoutinesAgreeWithTheirInstructions", func(t *testing.T, d device.Device) {
		r := rand.New(rand.NewPCG(11, 11))
		for range e.routines {
			checkRoutine(t, d, r, e.families, r.IntN(12))
		}
	})
	on("BadPlacesAreRefused", checkPlaces)
	on("BadBuffersOfRoutinesAreRefused", checkRoutineBuffers)
	on("ABadIndexStopsARoutineAndNamesTheCall", checkRoutineIndex)
}

// checkLarge covers what small shapes do not reach: libraries, tiles, chunks.
func checkLarge(t *testing.T, d device.Device, e extent) {
	g := gen{Rand: rand.New(rand.NewPCG(3, 3))}
	for _, dt := range e.large {
		for trans := range 4 {
			i := kernels.MatMul{TransA: trans&1 != 0, TransB: trans&2 != 0}
			a, b := device.Shape{2, 41, 67}, device.Shape{67, 35}
			if i.TransA {
				a = device.Shape{2, 67, 41}
			}
			if i.TransB {
				b = device.Shape{35, 67}
			}
			Check(t, d, i, g.tensor(dt, a), g.tensor(dt, b))
		}
		Check(t, d, kernels.Transpose{Perm: []int{2, 0, 1}}, g.tensor(dt, device.Shape{35, 3, 70}))
		Check(t, d, kernels.Binary{Fn: kernels.Sub}, g.tensor(dt, device.Shape{3, 1}), g.tensor(dt, device.Shape{1, 1100}))
		Check(t, d, manyOuts(device.Shape{70, 1024}), g.tensor(dt, device.Shape{70, 1024}), g.tensor(dt, device.Shape{1024}))
		Check(t, d, kernels.Softmax{Axis: 1}, g.tensor(dt, device.Shape{2, 300}))
		for _, w := range []kernels.Window{kernels.Square(3, 1, 1), kernels.Square(3, 2, 0), kernels.Square(5, 1, 2), kernels.Square(1, 1, 0)}[:e.windows] {
			x, filter := g.tensor(dt, device.Shape{2, 9, 29, 37}), g.tensor(dt, device.Shape{19, 9, w.Kernel[0], w.Kernel[1]})
			i := kernels.Conv2d{Window: w}
			out, err := i.Infer(types([]Tensor{x, filter}))
			require.NoError(t, err)
			Check(t, d, i, x, filter)
			Check(t, d, kernels.Conv2dGradX{Window: w, Height: 29, Width: 37}, filter, g.tensor(dt, out[0].Shape))
			Check(t, d, kernels.Conv2dGradW{Window: w}, x, g.tensor(dt, out[0].Shape))
		}
		for _, causal := range []bool{false, true} {
			if !slices.Contains(e.families, "Attention") {
				break
			}
			q, k := g.tensor(dt, device.Shape{1, 70, 3, 33}), g.tensor(dt, device.Shape{1, 150, 3, 33})
			in := []Tensor{q, k, g.tensor(dt, k.Shape)}
			of := kernels.Attention{Causal: causal}
			Check(t, d, of, in...)
			Check(t, d, GradOf(of, false), append(append(in, attended(of, in)...), g.tensor(dt, q.Shape))...)
		}
		Check(t, d, kernels.NormalizeGrad{Eps: 1e-5}, g.tensor(dt, device.Shape{2, 300}), g.tensor(dt, device.Shape{2, 300}))
		Check(t, d, kernels.LayerNormGrad{Eps: 1e-5}, g.tensor(dt, device.Shape{20, 300}), g.tensor(dt, device.Shape{300}), g.tensor(dt, device.Shape{20, 300}))
	}
}

// manyOuts is a map of two operands, with every kind of fold.
func manyOuts(s device.Shape) kernels.Map {
	i := kernels.Map{Shape: s, Steps: []kernels.Step{
		{Op: kernels.Binary{Fn: kernels.Add}, Args: [2]int{0, 1}}, {Op: kernels.Unary{Fn: kernels.Sigmoid}, Args: [2]int{2}},
	}, Outs: []kernels.Out{{Reg: 2}, {Reg: 3}}}
	for fn := range kernels.ReduceFn(3) {
		for _, axes := range [][]int{nil, {0}, {1}} {
			i.Outs = append(i.Outs, kernels.Out{Reg: 3, Fold: &kernels.Reduce{Fn: fn, Axes: axes}})
		}
	}
	return i
}

// checkAccuracy sums enough that adding up in float32 would be visibly off.
func checkAccuracy(t *testing.T, d device.Device) {
	const n = 1 << 18
	x := New(device.Float32, device.Shape{n}, 0.1)
	for _, axes := range [][]int{nil, {0}} {
		out := []kernels.Type{{Dtype: device.Float32}}
		got, err := RunOn(t, d, kernels.Reduce{Fn: kernels.Sum, Axes: axes}, out, []Tensor{x})
		require.NoError(t, err)
		require.Equal(t, float64(float32(n*x.V[0])), got[0].V[0])
	}
	column := Tensor{kernels.Type{Dtype: device.Float32, Shape: device.Shape{n / 2, 2}}, x.V}
	out := []kernels.Type{{Dtype: device.Float32, Shape: device.Shape{2}}}
	got, err := RunOn(t, d, kernels.Reduce{Fn: kernels.Mean, Axes: []int{0}}, out, []Tensor{column})
	require.NoError(t, err)
	require.Equal(t, []float64{x.V[0], x.V[0]}, got[0].V)

	ids := New(device.Int32, device.Shape{n}, 1)
	out = []kernels.Type{{Dtype: device.Float32, Shape: device.Shape{2}}}
	got, err = RunOn(t, d, kernels.ScatterAdd{Rows: 2}, out, []Tensor{ids, x})
	require.NoError(t, err)
	require.InEpsilon(t, n*x.V[0], got[0].V[1], 1e-5)
}

func checkExtremes(t *testing.T, d device.Device) {
	inf, nan := math.Inf(1), math.NaN()
	for _, dt := range []device.Dtype{device.Float32, device.Float64} {
		vec := func(v ...float64) Tensor { return New(dt, device.Shape{len(v)}, v...) }
		apply := func(i kernels.Instr, in ...Tensor) []float64 {
			out, err := i.Infer(types(in))
			require.NoError(t, err)
			got, err := RunOn(t, d, i, out, in)
			require.NoError(t, err)
			return got[0].V
		}
		require.Equal(t, []float64{0.5, 0.5, 0}, apply(kernels.Softmax{}, vec(1e4, 1e4, -1e4)))
		require.Equal(t, []float64{0, 1, 1}, apply(kernels.Unary{Fn: kernels.Sigmoid}, vec(-1e4, 1e4, inf)))
		require.Equal(t, []float64{0, 1e4, inf}, apply(kernels.Unary{Fn: kernels.Gelu}, vec(-inf, 1e4, inf)))
		require.Equal(t, []float64{0, 1}, apply(kernels.Binary{Fn: kernels.GeluGrad}, vec(-inf, inf), vec(1, 1)))
		require.True(t, math.IsNaN(apply(kernels.Unary{Fn: kernels.Relu}, vec(nan))[0]))
		require.True(t, math.IsNaN(apply(kernels.Reduce{Fn: kernels.Max}, vec(1, nan, 2))[0]))
		require.Equal(t, []float64{-inf}, apply(kernels.Reduce{Fn: kernels.Max}, vec(-inf, -inf)))
		require.Equal(t, []float64{0, 0, 2}, apply(kernels.MaxGrad{}, vec(-inf, 1, nan), New(dt, nil, nan), New(dt, nil, 2)))
		require.Equal(t, []float64{0, math.MaxInt32, math.MinInt32, -1}, apply(kernels.Cast{To: device.Int32}, vec(nan, 1e20, -inf, -1.9)))
		for n := 0; n < 2100; n += 41 { // wherever it stands, also among the largest numbers
			x := make([]float64, n+1)
			for k := range x {
				x[k] = math.MaxFloat32
			}
			require.Equal(t, []float64{float64(kernels.AllFinite)}, apply(kernels.NonFinite{}, vec(x...)))
			for v, want := range map[float64]kernels.Finiteness{inf: kernels.HasInfinity, -inf: kernels.HasInfinity, nan: kernels.HasNaN} {
				x[(n*7)%len(x)] = v
				require.Equal(t, []float64{float64(want)}, apply(kernels.NonFinite{}, vec(x...)))
			}
		}
		labels := New(device.Int64, device.Shape{1}, 1)
		require.Equal(t, []float64{2e4}, apply(kernels.CrossEntropy{}, New(dt, device.Shape{1, 2}, 1e4, -1e4), labels))
	}
}

// checkInPlace writes results over operands: everywhere where they may lie, and once where they
// must not.
func checkInPlace(t *testing.T, d device.Device, e extent) {
	b, err := backend.For(d)
	require.NoError(t, err)
	r, ran := rand.New(rand.NewPCG(9, 9)), map[string]bool{}
	for range e.cases {
		for _, family := range e.families {
			i, in := Case(r, family)
			out, err := i.Infer(types(in))
			require.NoError(t, err)
			want, slack, err := oracle(i, in, out)
			if err != nil {
				continue // an id that is out of range
			}
			k, err := b.Prepare(i, types(in))
			require.NoError(t, err)
			var ins, outs []*device.Buffer
			for _, x := range in {
				ins = append(ins, upload(t, d, x))
			}
			all, may := slices.Clone(ins), true
			for n, o := range out {
				m := r.IntN(len(in) + 1)
				if m == len(in) || !o.Equal(in[m].Type) || slices.Contains(outs, ins[m]) || !may && !kernels.Overwrites(i, types(in), n, m) {
					outs = append(outs, garbage(t, d, o.Bytes()))
					all = append(all, outs[n])
					continue
				}
				outs = append(outs, ins[m])
				ok := kernels.Overwrites(i, types(in), n, m)
				may, ran[family] = may && ok, ran[family] || ok
			}
			err = k.Run(outs, ins)
			if err == nil {
				err = late(t, d)
			}
			if !may {
				require.ErrorIs(t, err, kernels.ErrOperands, "%v of %v", i, types(in))
			} else {
				require.NoError(t, err)
				for n := range want {
					require.Negative(t, differ(i, decode(out[n], bytesOf(t, d, outs[n])), want[n], slack[n]), "%v of %v in place", i, types(in))
				}
			}
			release(t, all)
		}
	}
	require.Subset(t, slices.Collect(maps.Keys(ran)), []string{"Unary", "Binary", "Update", "UpdateMany", "SumSquares", "OnRows", "Map", "Softmax", "LayerNormGrad"})
}

func checkIndices(t *testing.T, d device.Device) {
	f := func(s ...int) Tensor { return New(device.Float32, s, 1) }
	for _, id := range []float64{-1, 3, math.MaxInt32} {
		for _, dt := range []device.Dtype{device.Int32, device.Int64} {
			ids := New(dt, device.Shape{2, 2}, 0, 2, id, 1)
			row := New(dt, device.Shape{4}, 0, 2, id, 1)
			Check(t, d, kernels.Gather{}, f(3, 5), ids)
			Check(t, d, kernels.ScatterAdd{Rows: 3}, ids, f(2, 2, 5))
			Check(t, d, kernels.CrossEntropy{}, f(4, 3), row)
			Check(t, d, kernels.CrossEntropyGrad{}, f(4, 3), row, f())
			Check(t, d, kernels.OnRows{Of: kernels.Update{Rule: kernels.SGD, LR: 1, Step: 1}}, f(3, 5), f(4, 5), row)
			_, err := RunOn(t, d, kernels.Gather{}, []kernels.Type{{Dtype: device.Float32, Shape: device.Shape{2, 2, 5}}}, []Tensor{f(3, 5), ids})
			require.ErrorContains(t, err, "position 2")
		}
	}
	Check(t, d, kernels.Gather{}, f(0, 5), New(device.Int32, device.Shape{1}, 0))
}

func checkBuffers(t *testing.T, d device.Device) {
	other := device.NewSim(device.SimConfig{Index: 99})
	x := New(device.Float32, device.Shape{2, 3}, 1, 2, 3)
	b, err := backend.For(d)
	require.NoError(t, err)
	add, err := b.Prepare(kernels.Binary{Fn: kernels.Add}, types([]Tensor{x, x}))
	require.NoError(t, err)
	move, err := b.Prepare(kernels.Reshape{Shape: device.Shape{6}}, types([]Tensor{x}))
	require.NoError(t, err)

	one := New(device.Int64, device.Shape{1}, 0)
	rows, err := b.Prepare(kernels.OnRows{Of: kernels.Update{Rule: kernels.SGD, LR: 1, Momentum: 1, Step: 1}}, types([]Tensor{x, New(device.Float32, device.Shape{1, 3}, 1), x, one}))
	require.NoError(t, err)

	good, out, away := upload(t, d, x), garbage(t, d, x.Bytes()), upload(t, other, x)
	short, long, gone := garbage(t, d, x.Bytes()-4), garbage(t, d, x.Bytes()+4), garbage(t, d, x.Bytes())
	require.NoError(t, gone.Release())
	good2, row, id := upload(t, d, x), garbage(t, d, 12), upload(t, d, one)
	defer func() { release(t, []*device.Buffer{good, out, away, short, long, good2, row, id}) }()
	type bufs = []*device.Buffer
	for _, bad := range []struct {
		why       string
		k         kernels.Kernel
		outs, ins bufs
		err       error
	}{
		{"operand elsewhere", add, bufs{out}, bufs{good, away}, device.ErrElsewhere},
		{"result elsewhere", add, bufs{away}, bufs{good, good}, nil},
		{"operand released", add, bufs{out}, bufs{good, gone}, device.ErrReleased},
		{"result released", add, bufs{gone}, bufs{good, good}, device.ErrReleased},
		{"operand short", add, bufs{out}, bufs{good, short}, kernels.ErrOperands},
		{"operand long", add, bufs{out}, bufs{long, good}, kernels.ErrOperands},
		{"result short", add, bufs{short}, bufs{good, good}, kernels.ErrOperands},
		{"nil operand", add, bufs{out}, bufs{nil, good}, kernels.ErrOperands},
		{"nil result", add, bufs{nil}, bufs{good, good}, kernels.ErrOperands},
		{"too few operands", add, bufs{out}, bufs{good}, kernels.ErrOperands},
		{"no results", add, nil, bufs{good, good}, kernels.ErrOperands},
		{"result shared where it may not be", move, bufs{good}, bufs{good}, kernels.ErrOperands},
		{"results over each other's tables", rows, bufs{good2, good}, bufs{good, row, good2, id}, kernels.ErrOperands},
	} {
		err := bad.k.Run(bad.outs, bad.ins)
		require.Error(t, err, bad.why)
		if bad.err != nil {
			require.ErrorIs(t, err, bad.err, bad.why)
		}
	}
	require.NoError(t, add.Run(bufs{out}, bufs{good, good}), "a refused run must not break the kernel")
}

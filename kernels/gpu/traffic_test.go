//go:build !race

package gpu

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/internal/ptx/simt"
	"github.com/weft-project/weft/kernels"
)

// What a kernel asks of memory is the same on every GPU, and can be counted without one. How long
// it takes cannot, but what would keep a kernel from the memory's bandwidth can be seen: sectors
// that are not used wholly, or fetched twice; conflicts in shared memory; more instructions than
// there is time for.

// issue is how many instructions of warps a GPU begins while its memory moves 512 bytes: an H200
// has 132 processors that begin four in each of 1.98·10⁹ cycles a second, and moves 4.8·10¹² bytes
// in it (NVIDIA, H200 data sheet).
const issue = 512 * 132 * 4 * 1.98e9 / 4.8e12

// wasted is what a kernel may ask for in vain, as a share of the bytes of operands and results.
const wasted = 0.05

// bill is what an instruction may cost.
type bill struct {
	moved float64 // bytes of sectors, as a share of those of operands and results
	steps float64 // of issue
}

// traffic runs an instruction on a machine of its own, and gives what each of its kernels asked of
// memory, and the bytes of operands and results.
func traffic(t *testing.T, l lies, x []kerneltest.Tensor) (by map[string]simt.Traffic, whole int) {
	m := ptxtest.New(ptx.Config{Traffic: true})
	g, err := Config{Precision: BF16}.On(bare{m}, device.CUDA(0))
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close()) }()
	x, _ = l.wide(t, x)
	in, out := l.types(t, x)
	for _, x := range append(in, out...) {
		whole += x.Bytes()
	}
	_, err = l.run(t, g, x)
	require.NoError(t, err)
	by = m.Traffic()
	for name, k := range by {
		if k.Launches == 0 {
			delete(by, name)
		}
	}
	return by, whole
}

// over says what of some kernels' traffic is more than a bill.
func over(by map[string]simt.Traffic, whole int, most bill) error {
	var errs []error
	sectors, steps := int64(0), int64(0)
	for name, k := range by {
		sectors += k.Loads.Sectors + k.Stores.Sectors
		steps += k.Steps
		for _, of := range []struct {
			what string
			simt.Sectors
		}{{"loads", k.Loads}, {"stores", k.Stores}} {
			if unused := 32*of.Sectors.Sectors - of.Bytes; float64(unused) > wasted*float64(whole) {
				errs = append(errs, fmt.Errorf("%s: %d bytes of the sectors of %s are not used", name, unused, of.what))
			}
		}
		if more := k.Shared.Taken - k.Shared.Least; 128*float64(more) > wasted*float64(whole) {
			errs = append(errs, fmt.Errorf("%s: its %d accesses to shared memory take %d", name, k.Shared.Least, k.Shared.Taken))
		}
		if k.Local > 0 {
			errs = append(errs, fmt.Errorf("%s: %d bytes of threads' own memory", name, k.Local))
		}
	}
	if moved := float64(32*sectors) / float64(whole); moved > most.moved {
		errs = append(errs, fmt.Errorf("%.3f times the bytes of operands and results, at most %.3f", moved, most.moved))
	}
	if share := float64(steps) * 512 / float64(whole) / issue; share > most.steps {
		errs = append(errs, fmt.Errorf("%.2f of the instructions that there is time for, at most %.2f", share, most.steps))
	}
	return errors.Join(errs...)
}

func TestWhatMemoryBoundsAsksForNoMoreThanItNeeds(t *testing.T) {
	r, f32 := rand.New(rand.NewPCG(21, 1)), device.Float32
	flat, rows, row := drawn(r, f32, 1<<18), drawn(r, f32, 256, 1024), drawn(r, f32, 1024)
	tall, narrow, wide := drawn(r, f32, 8192, 256), drawn(r, f32, 256), drawn(r, f32, 6, 50304)
	labels, gy, ids := drawnIDs(r, device.Int64, 50304, 6), drawn(r, f32), drawnIDs(r, device.Int64, 256, 1024)
	padded, odd, table, some := drawn(r, f32, 6, 50264), drawnIDs(r, device.Int64, 50257, 6), drawn(r, f32, 256, 1024), drawn(r, f32, 512, 1024)
	counted := kernels.Update{Rule: kernels.Adam, LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Step: 2, Missed: true}
	count := kerneltest.New(device.Int64, nil, 1)
	adamw := kernels.Update{Rule: kernels.AdamW, LR: 1e-3, WeightDecay: 0.01, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Step: 1}
	of := func(x ...kerneltest.Tensor) []kerneltest.Tensor { return x }
	for _, k := range []struct {
		name string
		l    lies
		in   []kerneltest.Tensor
		most bill
	}{
		{"exp", lies{of: kernels.Unary{Fn: kernels.Exp}}, of(flat), bill{1, 0.31}},
		{"add", lies{of: kernels.Binary{Fn: kernels.Add}}, of(flat, flat), bill{1, 0.08}},
		{"add a row to each", lies{of: kernels.Binary{Fn: kernels.Add}}, of(rows, row), bill{1.5, 0.14}}, // the row lies in a cache
		{"transpose", lies{of: kernels.Transpose{Perm: []int{1, 0}}}, of(rows), bill{1, 0.37}},
		{"sum", lies{of: kernels.Reduce{Fn: kernels.Sum, Axes: []int{0}}}, of(flat), bill{1.01, 0.23}},
		{"sum of rows", lies{of: kernels.Reduce{Fn: kernels.Sum, Axes: []int{1}}}, of(rows), bill{1.01, 0.2}},
		{"sum of columns", lies{of: kernels.Reduce{Fn: kernels.Sum, Axes: []int{0}}}, of(tall), bill{1.1, 0.3}},
		{"greatest of columns", lies{of: kernels.Reduce{Fn: kernels.Max, Axes: []int{0}}}, of(tall), bill{1.1, 0.36}},
		{"softmax", lies{of: kernels.Softmax{Axis: 1}}, of(rows), bill{1, 0.6}},
		{"softmax of wide rows", lies{of: kernels.Softmax{Axis: 1}}, of(wide), bill{1, 0.66}},
		{"gradient of softmax", lies{of: kernels.SoftmaxGrad{Axis: 1}}, of(rows, rows), bill{1, 0.23}},
		{"layer norm", lies{of: kernels.LayerNorm{Eps: 1e-5}}, of(rows, row, row), bill{2, 0.43}}, // two rows again for each, from a cache
		{"layer norm to bfloat16", lies{of: kernels.LayerNorm{Eps: 1e-5}, out: 1}, of(rows, row, row), bill{2.34, 0.6}},
		{"layer norm of bfloat16", lies{of: kernels.LayerNorm{Eps: 1e-5}, in: 1, out: 1}, of(rows, row, row), bill{3, 0.95}},
		{"gradient of layer norm", lies{of: kernels.LayerNormGrad{Eps: 1e-5}}, of(tall, narrow, tall), bill{1.85, 0.82}},
		{"gradient of layer norm to bfloat16", lies{of: kernels.LayerNormGrad{Eps: 1e-5}, in: 4, out: 1}, of(tall, narrow, tall), bill{2.3, 1.3}},
		{"cross-entropy", lies{of: kernels.CrossEntropy{}}, of(wide, labels), bill{1.01, 0.6}},
		{"cross-entropy of bfloat16", lies{of: kernels.CrossEntropy{}, in: 1}, of(wide, labels), bill{1.01, 1}},
		{"gradient of cross-entropy", lies{of: kernels.CrossEntropyGrad{}}, of(wide, labels, gy), bill{1.01, 0.75}},
		{"gradient of cross-entropy of bfloat16", lies{of: kernels.CrossEntropyGrad{}, in: 1, out: 1}, of(wide, labels, gy), bill{1.01, 0.9}},
		{"AdamW", lies{of: adamw}, of(flat, flat, flat, flat), bill{1.01, 0.23}},
		{"Adam that counts", lies{of: counted}, of(flat, flat, flat, flat, count), bill{1.02, 0.26}},
		{"Adam of sums of rows", lies{of: kernels.OnRows{Of: counted, Sum: true}}, of(table, some, table, table, count, drawnIDs(r, device.Int64, 256, 512)), bill{1.7, 0.36}}, // copies of the tables among them, which are not made in place,
		{"cross-entropy of padded rows", lies{of: kernels.CrossEntropy{Classes: 50257}}, of(padded, odd), bill{1.01, 0.6}},
		{"cross-entropy of padded rows of bfloat16", lies{of: kernels.CrossEntropy{Classes: 50257}, in: 1}, of(padded, odd), bill{1.05, 0.9}},
		{"gradient of cross-entropy of padded rows", lies{of: kernels.CrossEntropyGrad{Classes: 50257}}, of(padded, odd, gy), bill{1.01, 0.75}},
		{"gradient of cross-entropy of padded rows of bfloat16", lies{of: kernels.CrossEntropyGrad{Classes: 50257}, in: 1, out: 1}, of(padded, odd, gy), bill{1.05, 0.9}},
		{"gather", lies{of: kernels.Gather{}}, of(rows, ids), bill{1.62, 0.19}}, // each row four times
	} {
		t.Run(k.name, func(t *testing.T) {
			by, whole := traffic(t, k.l, k.in)
			for name, x := range by {
				t.Logf("%s: %+v; %.3f of the bytes, %.3f of the instructions", name, x, float64(32*(x.Loads.Sectors+x.Stores.Sectors))/float64(whole), float64(x.Steps)*512/float64(whole)/issue)
			}
			require.NoError(t, over(by, whole, k.most))
		})
	}
}

// What a scatter must move is the rows of the gradient, zeros for all rows of the result, the sums
// of those that occur, and twice the parts, in float64, of ids that reach beyond 32 keys. The
// kernels ask for each byte of that once, and for keys: each warp that adds up 512 bytes of a row
// reads three of 8 bytes, each of which is a sector of 32. So in the first case the sectors of
// loads are what must move and 12 % of it. Four rows and all warps ask for the same sector, which a
// cache has: of memory a row has 8 bytes of keys. Parts are stored in halves of sectors, which a
// cache puts together.
func TestAScatterMovesNothingButWhatItMustAndKeysFromACache(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 5))
	for _, c := range []struct{ rows, width, count int }{{256, 1024, 1024}, {256, 1024, 512}, {2048, 256, 1024}, {50257, 256, 64}, {3, 512, 200}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			ids := drawnIDs(r, device.Int64, c.rows, c.count)
			by, _ := traffic(t, lies{of: kernels.ScatterAdd{Rows: c.rows}}, []kerneltest.Tensor{ids, drawn(r, device.Float32, c.count, c.width)})
			sorted := slices.Sorted(slices.Values(ids.V))
			occur, parts, beyond := 0, 0, 0
			for from := 0; from < c.count; {
				to := from + 1
				for to < c.count && sorted[to] == sorted[from] {
					to++
				}
				occur++
				if runs := (to-1)/runKeys - from/runKeys + 1; runs > 1 {
					parts, beyond = parts+runs, beyond+1
				}
				from = to
			}
			row := 4 * c.width
			keys := 8 * (3*c.count - 2) * (row / 512)
			scatter := by["scatter_f32"]
			require.EqualValues(t, row*c.rows, by["zero"].Stores.Bytes)
			require.EqualValues(t, row*c.count+keys, scatter.Loads.Bytes)
			require.EqualValues(t, row*c.count+4*keys, 32*scatter.Loads.Sectors)
			require.EqualValues(t, row*(occur-beyond)+2*row*parts, scatter.Stores.Bytes)
			require.EqualValues(t, row*beyond, by["scatter_parts_f32"].Stores.Bytes)
			require.EqualValues(t, row*(occur-beyond)+4*row*parts, 32*scatter.Stores.Sectors)
			more := by["scatter_parts_f32"].Loads.Bytes - int64(2*row*parts)
			must := row * (c.rows + c.count + occur + 4*parts)
			require.GreaterOrEqual(t, more, int64(0))
			require.Less(t, more, int64(must/50), "keys that say whose parts these are")
			sectors := float64(32*(scatter.Loads.Sectors+by["scatter_parts_f32"].Loads.Sectors) - int64(row*c.count+2*row*parts))
			t.Logf("%d bytes must move; sectors of keys, from a cache, are %.3f of them", must, sectors/float64(must))
			require.Less(t, sectors/float64(must), 0.17)
		})
	}
}

func TestGradientsOfNarrowRowsAreStoredInWholeSectors(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 4))
	for _, n := range []int{8, 16, 24, 32} {
		x := drawn(r, device.Float32, 1<<10, n)
		by, _ := traffic(t, lies{of: kernels.NormalizeGrad{Eps: 1e-5}}, []kerneltest.Tensor{x, x})
		stores := by["norm_grad_f32"].Stores
		require.EqualValues(t, 4<<10*n, stores.Bytes)
		require.Equal(t, 32*stores.Sectors, stores.Bytes, "rows of %d", n)
	}
}

func TestTheUnitsForProductsAreFedWithoutConflicts(t *testing.T) {
	r, f32 := rand.New(rand.NewPCG(21, 3)), device.Float32
	x := heads{1, 512, 512, 1, 64}
	attended, back := x.attended(t, r, f32, true)
	a, b := drawn(r, f32, 256, 256), drawn(r, f32, 256, 256)
	product := func(ta, tb bool) lies { return lies{of: kernels.MatMul{TransA: ta, TransB: tb}} }
	for _, k := range []struct {
		name  string
		l     lies
		in    []kerneltest.Tensor
		moved float64 // bytes of sectors, as a share of those of operands and results: blocks read what other blocks read
		most  float64 // instructions for each of the units'
		more  float64 // accesses to shared memory, as a share of what they would be without conflicts
	}{
		{"attention", lies{of: kernels.Attention{Causal: true}, in: 7, out: 1}, attended, 1.8, 12.5, 1}, // with a look at what the diagonal may hide
		{"its gradient", lies{of: kernels.AttentionGrad{Causal: true}, in: 47, out: 7}, back, 2.5, 10, 1},
		{"product", product(false, false), []kerneltest.Tensor{a, b}, 1.01, 10, 1.13},
		{"product of a transposed", product(true, false), []kerneltest.Tensor{a, b}, 1.01, 10, 1},
		{"product with a transposed", product(false, true), []kerneltest.Tensor{a, b}, 1.01, 10, 1.25},
	} {
		t.Run(k.name, func(t *testing.T) {
			by, whole := traffic(t, k.l, k.in)
			maps.DeleteFunc(by, func(_ string, x simt.Traffic) bool { return x.Products == 0 })
			require.NotEmpty(t, by)
			sectors := int64(0)
			for name, x := range by {
				sectors += x.Loads.Sectors + x.Stores.Sectors
				t.Logf("%s: %+v; %.2f %.3f", name, x, float64(x.Steps)/float64(x.Products), float64(x.Shared.Taken)/float64(x.Shared.Least))
				require.LessOrEqual(t, float64(x.Steps)/float64(x.Products), k.most, name)
				require.LessOrEqual(t, float64(x.Shared.Taken)/float64(x.Shared.Least), k.more, name)
				require.Less(t, 32*x.Loads.Sectors-x.Loads.Bytes, x.Loads.Bytes/20, name)
				require.Equal(t, 32*x.Stores.Sectors, x.Stores.Bytes, name)
			}
			moved := float64(32*sectors) / float64(whole)
			t.Logf("%.3f of the bytes", moved)
			require.LessOrEqual(t, moved, k.moved)
		})
	}
}

func TestWhatAsksMemoryForTooMuchIsSeen(t *testing.T) {
	x := drawn(rand.New(rand.NewPCG(21, 2)), device.Float32, 1<<15, 2)
	by, whole := traffic(t, lies{of: kernels.Slice{Axis: 1, Start: 1, Stop: 2}}, []kerneltest.Tensor{x}) // of every 8 bytes the last 4
	require.Equal(t, 3<<15*4, whole)
	err := over(by, whole*2/3, bill{1, 0.01})
	require.ErrorContains(t, err, "weft_0: 131072 bytes of the sectors of loads are not used")
	require.ErrorContains(t, err, "1.500 times the bytes of operands and results, at most 1.000")
	require.ErrorContains(t, err, "of the instructions that there is time for, at most 0.01")
	for want, k := range map[string]simt.Traffic{
		"k: 64 bytes of the sectors of stores are not used":   {Stores: simt.Sectors{Requests: 1, Sectors: 3, Bytes: 32}},
		"k: its 100 accesses to shared memory take 106":       {Shared: simt.Wavefronts{Least: 100, Taken: 106}},
		"k: 8 bytes of threads' own memory":                   {Local: 8},
		"1.04 of the instructions that there is time for, at": {Steps: 116},
	} {
		require.ErrorContains(t, over(map[string]simt.Traffic{"k": k}, 512, bill{}), want)
	}
}

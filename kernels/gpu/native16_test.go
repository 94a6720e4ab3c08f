//go:build !race

package gpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/kernels"
)

// lies is an instruction by which operands and results lie as bfloat16, bit by bit. Result 0 may
// lie over an operand, which is number over-1.
type lies struct {
	of      kernels.Instr
	in, out uint64
	over    int
}

// narrow is the instruction, with those of its results that are bfloat16.
func (l lies) narrow() kernels.Narrow {
	n := kernels.Narrow{Of: l.of}
	for out := l.out; out != 0; out >>= 1 {
		n.Outs = append(n.Outs, out&1 == 1)
	}
	return n
}

// types are those of operands, and of results, as they lie.
func (l lies) types(t *testing.T, x []kerneltest.Tensor) (in, out []kernels.Type) {
	for k, x := range x {
		if l.in>>k&1 == 1 {
			x.Dtype = device.BFloat16
		}
		in = append(in, x.Type)
	}
	out, err := l.narrow().Infer(in)
	require.NoError(t, err)
	return in, out
}

// encoded are numbers as they lie.
func encoded(t *testing.T, d device.Dtype, v []float64) (b []byte) {
	for _, f := range v {
		switch bits := math.Float32bits(float32(f)); d {
		case device.BFloat16:
			require.Zero(t, bits&0xffff, "%v is no bfloat16", f)
			b = binary.LittleEndian.AppendUint16(b, uint16(bits>>16))
		case device.Float32:
			b = binary.LittleEndian.AppendUint32(b, bits)
		case device.Int32:
			b = binary.LittleEndian.AppendUint32(b, uint32(int32(f)))
		default:
			b = binary.LittleEndian.AppendUint64(b, uint64(int64(f)))
		}
	}
	return b
}

// decoded is encoded backwards, of floats.
func decoded(x kernels.Type, b []byte) kerneltest.Tensor {
	v := make([]float64, x.Shape.Elems())
	for k := range v {
		if x.Dtype == device.BFloat16 {
			v[k] = float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*k:])) << 16))
		} else {
			v[k] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*k:])))
		}
	}
	x.Dtype = device.Float32
	return kerneltest.Tensor{Type: x, V: v}
}

// run lowers an instruction for memory as it lies, which kernels must say that they read and write,
// and runs it.
func (l lies) run(t *testing.T, on *device.Accelerator, x []kerneltest.Tensor) ([]kerneltest.Tensor, error) {
	b := on.Memory().(*memory).backend
	in, out := l.types(t, x)
	for k := range in {
		require.Equal(t, l.in>>k&1 == 1, b.readsNarrow(l.of, in, k), "operand %d of %v", k, l.of)
	}
	for k := range out {
		require.True(t, l.out>>k&1 == 0 || b.writesNarrow(l.of, in, k), "result %d of %v", k, l.of)
	}
	c, err := b.lower(l.of, in, out)
	require.NoError(t, err)
	var bufs []*device.Buffer
	var ins, outs []spot
	alloc := func(bytes []byte) spot {
		buf, err := on.Alloc(len(bytes))
		require.NoError(t, err)
		require.NoError(t, on.Upload(buf, 0, bytes))
		bufs = append(bufs, buf)
		return spot{buf: len(bufs) - 1, n: len(bytes)}
	}
	for k, x := range x {
		ins = append(ins, alloc(encoded(t, in[k].Dtype, x.V)))
	}
	for k, o := range out {
		if k == 0 && l.over > 0 {
			require.True(t, kernels.Overwrites(l.narrow(), in, 0, l.over-1))
			outs = append(outs, ins[l.over-1])
			continue
		}
		fill := make([]byte, o.Bytes())
		for k := range fill {
			fill[k] = 0xff
		}
		outs = append(outs, alloc(fill))
	}
	q := b.build()
	q.appendCode(c, outs, ins, b.faultOf(c, l.of, in, -1))
	s, err := q.done()
	require.NoError(t, err)
	if err := s.run(bufs); err != nil {
		return nil, err
	}
	var got []kerneltest.Tensor
	for k, o := range out {
		at := make([]byte, o.Bytes())
		if err = on.Download(at, bufs[outs[k].buf], 0); err != nil {
			break
		}
		got = append(got, decoded(o, at))
	}
	for _, buf := range bufs {
		require.NoError(t, buf.Release())
	}
	return got, err
}

// check compares with the definition, of operands as they can lie. What is rounded may be off by
// half a unit more than what is not.
func (l lies) check(t *testing.T, on *device.Accelerator, x ...kerneltest.Tensor) {
	x, out := l.wide(t, x)
	want, err := kerneltest.Oracle(l.of, x, out)
	require.NoError(t, err)
	got, err := l.run(t, on, x)
	require.NoError(t, err)
	slack := kerneltest.Slack(l.of, x, out)
	for k, w := range want {
		if l.out>>k&1 == 0 {
			require.Negative(t, kerneltest.Differ(l.of, got[k], w, slack[k]...), "%+v of %v, result %d: got %v, want %v", l, x[0].Type, k, got[k].V, w.V)
			continue
		}
		for n, w := range w.V {
			g, more := got[k].V[n], 0.0
			if slack[k] != nil {
				more = slack[k][n]
			}
			require.True(t, math.IsNaN(w) && math.IsNaN(g) || math.Abs(g-w) <= halfUnit(w)+4e-6*(1+math.Abs(w))+more, "%+v of %v, result %d at %d: got %v, want %v", l, x[0].Type, k, n, g, w)
		}
	}
}

// wide is operands that are rounded where they lie as bfloat16, and the results' types in float32.
func (l lies) wide(t *testing.T, x []kerneltest.Tensor) ([]kerneltest.Tensor, []kernels.Type) {
	x = append([]kerneltest.Tensor(nil), x...)
	var types []kernels.Type
	for k := range x {
		if l.in>>k&1 == 1 {
			x[k] = rounded(x[k:k+1], 16)[0]
		}
		types = append(types, x[k].Type)
	}
	out, err := l.of.Infer(types)
	require.NoError(t, err)
	return x, out
}

// halfUnit is by how much rounding to bfloat16 moves a number at most.
func halfUnit(v float64) float64 {
	_, e := math.Frexp(v)
	return math.Ldexp(1, e-9)
}

// eitherWay is all ways in which an operand and a result may lie, but for both as float32.
var eitherWay = [][2]uint64{{1, 0}, {0, 1}, {1, 1}}

func TestWhatHasNoKernelForBFloat16IsNotSaidToReadOrWriteIt(t *testing.T) {
	b, x := machineOf(t, tensor(t)).Memory().(*memory).backend, kernels.Type{Dtype: device.BFloat16, Shape: device.Shape{2, 3}}
	require.False(t, b.readsNarrow(kernels.Softmax{Axis: 1}, []kernels.Type{x}, 0))
	require.False(t, b.writesNarrow(kernels.Softmax{Axis: 1}, []kernels.Type{x}, 0))
	loss := []kernels.Type{x, {Dtype: device.Int64, Shape: device.Shape{2}}, {Dtype: device.BFloat16}}
	require.True(t, b.readsNarrow(kernels.CrossEntropyGrad{}, loss, 0))
	require.False(t, b.readsNarrow(kernels.CrossEntropyGrad{}, loss, 2))
	require.False(t, b.writesNarrow(kernels.CrossEntropy{}, loss, 0))
	wide := kernels.Type{Dtype: device.Float64, Shape: device.Shape{2, 3}}
	require.False(t, b.writesNarrow(kernels.Normalize{}, []kernels.Type{wide}, 0))
	require.False(t, b.readsNarrow(kernels.NormalizeGrad{}, []kernels.Type{x, x}, 0))
	old := machineOf(t, ptxtest.New(ptx.Config{Arch: 75})).Memory().(*memory).backend
	require.False(t, old.readsNarrow(kernels.CrossEntropyGrad{}, loss, 0))
	require.False(t, old.writesNarrow(kernels.CrossEntropyGrad{}, loss, 0))
}

// entropyOperands are logits, labels and the gradient of the loss.
func entropyOperands(r *rand.Rand, ids device.Dtype, rows, n int) []kerneltest.Tensor {
	return []kerneltest.Tensor{drawn(r, device.Float32, rows, n), drawnIDs(r, ids, n, rows), drawn(r, device.Float32)}
}

// rooms are machines with shared memory for rows, and without.
func rooms(t *testing.T) map[string]*device.Accelerator {
	return map[string]*device.Accelerator{"roomy": machineOf(t, tensor(t)), "cramped": machineOf(t, cramped{tensor(t), maxStatic})}
}

func TestCrossEntropyReadsAndWritesBFloat16AtEveryWidth(t *testing.T) {
	for name, g := range rooms(t) {
		r := rand.New(rand.NewPCG(16, 1))
		for _, s := range [][2]int{{1, 1}, {5, 2}, {3, 7}, {4, 8}, {9, 9}, {7, 23}, {33, 8}, {2, 64}, {3, 131}, {2, 1043}, {1, 4109}, {2, 12001}} {
			t.Run(fmt.Sprint(name, s), func(t *testing.T) {
				x := entropyOperands(r, []device.Dtype{device.Int32, device.Int64}[s[1]%2], s[0], s[1])
				lies{of: kernels.CrossEntropy{}, in: 1}.check(t, g, x[:2]...)
				for _, w := range eitherWay {
					lies{of: kernels.CrossEntropyGrad{}, in: w[0], out: w[1]}.check(t, g, x...)
				}
				lies{of: kernels.CrossEntropyGrad{}, in: 1, out: 1, over: 1}.check(t, g, x...)
			})
		}
	}
}

func TestEveryLabelsOwnColumnIsFoundInRowsThatBeginAnywhere(t *testing.T) {
	g, r := machineOf(t, tensor(t)), rand.New(rand.NewPCG(16, 2))
	for _, n := range []int{3, 8, 19, 29} {
		x := entropyOperands(r, device.Int64, n, n)
		for k := range n {
			x[1].V[k] = float64(k)
		}
		lies{of: kernels.CrossEntropy{}, in: 1}.check(t, g, x[:2]...)
		for _, w := range eitherWay {
			lies{of: kernels.CrossEntropyGrad{}, in: w[0], out: w[1]}.check(t, g, x...)
		}
	}
}

func TestCrossEntropyOfBFloat16KeepsItsDigitsWhereLogitsAreLarge(t *testing.T) {
	g, labels := machineOf(t, tensor(t)), kerneltest.New(device.Int32, device.Shape{1}, 0)
	for top := 900.0; top < 1024; top += 8 {
		x := kerneltest.New(device.Float32, device.Shape{1, 10}, top, top-4, top, top-8, top-12)
		lies{of: kernels.CrossEntropy{}, in: 1}.check(t, g, x, labels)
		lies{of: kernels.CrossEntropyGrad{}, in: 1}.check(t, g, x, labels, kerneltest.New(device.Float32, device.Shape{}, 1))
	}
}

func TestCrossEntropyOfBFloat16TakesWhatIsMaskedAndWhatIsNoNumberAsTheDefinitionDoes(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, g := range rooms(t) {
		for _, c := range [][]float64{{-inf, 0, -inf, 0}, {-inf, -inf, -inf, 3}, {-inf, -inf, -inf, -inf}, {1, inf, 1, 1}, {1, nan, 1, -inf}, {nan, nan, nan, nan}} {
			for _, times := range []int{1, 9, 75} {
				var all []float64
				for range times {
					all = append(all, c...)
				}
				n := len(all)
				x := kerneltest.New(device.Float32, device.Shape{3, n}, all...)
				labels, gy := kerneltest.New(device.Int32, device.Shape{3}, 3, float64(n-1), 3), kerneltest.New(device.Float32, device.Shape{}, 1)
				for _, i := range []lies{{of: kernels.CrossEntropy{}, in: 1}, {of: kernels.CrossEntropyGrad{}, in: 1, out: 1}, {of: kernels.CrossEntropyGrad{}, out: 1}} {
					operands := []kerneltest.Tensor{x, labels, gy}[:2]
					if i.out == 1 {
						operands = append(operands, gy)
					}
					got, err := i.run(t, g, operands)
					require.NoError(t, err)
					want := results(t, device.Host(), i.of, operands...)
					for k, w := range want[0].V {
						g := got[0].V[k]
						require.True(t, g == w || math.IsNaN(w) && math.IsNaN(g) || math.Abs(g-w) <= halfUnit(w)+4e-6, "%+v of %v at %d: got %v, want %v", i, c, k, g, w)
					}
				}
			}
		}
	}
}

func TestALabelThatIsNotThereIsReportedForLogitsInBFloat16(t *testing.T) {
	g, r := machineOf(t, tensor(t)), rand.New(rand.NewPCG(16, 4))
	for _, id := range []float64{-1, 11, math.MaxInt32} {
		x := entropyOperands(r, device.Int32, 5, 11)
		x[0] = rounded(x[:1], 16)[0]
		x[1].V[2] = id
		for _, i := range []lies{{of: kernels.CrossEntropy{}, in: 1}, {of: kernels.CrossEntropyGrad{}, in: 1, out: 1}, {of: kernels.CrossEntropyGrad{}, in: 1}, {of: kernels.CrossEntropyGrad{}, out: 1}} {
			operands := x
			if _, ok := i.of.(kernels.CrossEntropy); ok {
				operands = x[:2]
			}
			_, err := i.run(t, g, operands)
			var at *kernels.IndexError
			require.ErrorAs(t, err, &at)
			require.Equal(t, [3]int64{int64(id), 2, 11}, [3]int64{at.ID, int64(at.At), int64(at.N)})
		}
	}
}

func TestLayerNormReadsAndWritesBFloat16AtEveryWidth(t *testing.T) {
	for name, g := range rooms(t) {
		r := rand.New(rand.NewPCG(16, 5))
		for _, s := range [][2]int{{1, 1}, {5, 2}, {3, 4}, {9, 31}, {33, 8}, {40, 32}, {3, 132}, {2, 258}, {2, 1032}, {0, 3}} {
			t.Run(fmt.Sprint(name, s), func(t *testing.T) {
				x, gamma, beta := drawn(r, device.Float32, s[0], s[1]), drawn(r, device.Float32, s[1]), drawn(r, device.Float32, s[1])
				gy := drawn(r, device.Float32, s[0], s[1])
				for _, w := range eitherWay {
					lies{of: kernels.Normalize{Eps: 1e-5}, in: w[0], out: w[1]}.check(t, g, x)
					lies{of: kernels.LayerNorm{Eps: 1e-5}, in: w[0], out: w[1]}.check(t, g, x, gamma, beta)
					lies{of: kernels.NormalizeGrad{Eps: 1e-5}, in: w[0] << 1, out: w[1]}.check(t, g, x, gy)
					lies{of: kernels.LayerNormGrad{Eps: 1e-5}, in: w[0] << 2, out: w[1]}.check(t, g, x, gamma, gy)
				}
				if s[0] == 0 {
					return // nothing lies over anything
				}
				lies{of: kernels.LayerNorm{Eps: 1e-5}, in: 1, out: 1, over: 1}.check(t, g, x, gamma, beta)
				lies{of: kernels.LayerNormGrad{Eps: 1e-5}, in: 4, over: 1}.check(t, g, x, gamma, gy)
				lies{of: kernels.LayerNormGrad{Eps: 1e-5}, in: 4, out: 1, over: 3}.check(t, g, x, gamma, gy)
			})
		}
	}
}

package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/kernels"
	backends "github.com/weft-project/weft/kernels/backend"
)

// withBias is a product of 6×5 and 5×7 with a bias.
func withBias(r *rand.Rand) (kernels.MatMulThen, []kerneltest.Tensor) {
	then := kernels.Map{Shape: device.Shape{6, 7}, Steps: []kernels.Step{{Op: kernels.Binary{Fn: kernels.Add}, Args: [2]int{0, 1}}}, Outs: []kernels.Out{{Reg: 2}}}
	return kernels.MatMulThen{Then: then}, []kerneltest.Tensor{drawn(r, device.Float32, 6, 5), drawn(r, device.Float32, 5, 7), drawn(r, device.Float32, 7)}
}

func TestWhatDoesNotGoToTheLibraryIsCountedWithTheReason(t *testing.T) {
	all := func(cuda.ProductSpec) bool { return true }
	odd := errors.New("cuBLASLt says an odd thing")
	for name, c := range map[string]struct {
		driver cuda.Driver
		want   []kernels.Way
	}{
		"a library": {&library{}, []kernels.Way{{Work: "epilogue", By: "library", Times: 1}}},
		"none":      {ptxtest.New(ptx.Config{}), []kernels.Way{{Work: "product", By: "kernels", Why: whyNoLibrary, Times: 1}}},
		"one that is not there": {&library{Lacks: all, Err: fmt.Errorf("%w: install it", cuda.ErrNoLibrary)}, []kernels.Way{
			{Work: "epilogue", By: "kernels", Why: whyNoLibrary, Last: "a CUDA library is missing: install it", Times: 1},
			{Work: "product", By: "kernels", Why: whyNoLibrary, Last: "a CUDA library is missing: install it", Times: 1},
		}},
		"one that lacks the epilogue": {&library{Lacks: func(s cuda.ProductSpec) bool { return s.Epilogue != cuda.None }}, []kernels.Way{
			{Work: "epilogue", By: "kernels", Why: whyLacks, Last: "the library has no such product", Times: 1},
			{Work: "product", By: "library", Times: 1},
		}},
		"one without memory": {&library{Lacks: all, Err: fmt.Errorf("cublasLtCreate: %w", device.ErrMemory)}, []kernels.Way{
			{Work: "epilogue", By: "kernels", Why: whyNoMemory, Last: "cublasLtCreate: out of device memory", Times: 1},
			{Work: "product", By: "kernels", Why: whyNoMemory, Last: "cublasLtCreate: out of device memory", Times: 1},
		}},
		"one that fails": {&library{Lacks: all, Err: errors.Join(cuda.ErrLaunch, odd)}, []kernels.Way{
			{Work: "epilogue", By: "kernels", Why: whyFailed, Last: errors.Join(cuda.ErrLaunch, odd).Error(), Times: 1},
			{Work: "product", By: "kernels", Why: whyFailed, Last: errors.Join(cuda.ErrLaunch, odd).Error(), Times: 1},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if l, ok := c.driver.(*library); ok {
				l.Machine, l.T, l.Ran = ptxtest.New(ptx.Config{}), t, map[cuda.Epilogue]int{}
			}
			d := on(t, c.driver)
			i, in := withBias(rand.New(rand.NewPCG(5, 8)))
			_, err := kerneltest.RunOn(t, d, i, []kernels.Type{{Dtype: device.Float32, Shape: device.Shape{6, 7}}}, in)
			require.NoError(t, err)
			require.Equal(t, c.want, backends.Ways(d))
		})
	}
	require.Nil(t, backends.Ways(device.Host()), "it does not count")
}

// older is a GPU whose driver takes no machine code, or none of today's.
type older struct {
	*ptx.Machine
	arch int
}

func (o older) Info() cuda.Info {
	i := o.Machine.Info()
	i.Simulated, i.Arch = false, o.arch
	return i
}

func (o older) Load(image []byte) (cuda.Module, error) {
	if bytes.HasPrefix(image, []byte("\x7fELF")) {
		return nil, &cuda.Error{Op: "cuModuleLoadDataEx", Code: 209, Err: cuda.ErrImage}
	}
	return o.Machine.Load(image)
}

func TestWhereTheDriverTakesNoMachineCodeItCompilesPTXWhichIsCounted(t *testing.T) {
	for arch, want := range map[int]kernels.Way{
		75: {Work: "module", By: "PTX", Why: whyNoCubin, Times: 1}, 120: {Work: "module", By: "PTX", Why: whyNoCubin, Times: 1},
		90: {Work: "module", By: "PTX", Why: whyFailedCubin, Last: (&cuda.Error{Op: "cuModuleLoadDataEx", Code: 209, Err: cuda.ErrImage}).Error(), Times: 1},
	} {
		d, r := on(t, older{ptxtest.New(ptx.Config{}), arch}), rand.New(rand.NewPCG(5, 10))
		kerneltest.Check(t, d, kernels.Softmax{Axis: 1}, drawn(r, device.Float32, 3, 5))
		require.Equal(t, []kernels.Way{want}, backends.Ways(d))
	}
}

func TestAnErrorOfTheLibraryThatKernelsWouldMeetTooIsNotPassedOver(t *testing.T) {
	l := &library{Machine: ptxtest.New(ptx.Config{}), T: t, Ran: map[cuda.Epilogue]int{}, Lacks: func(cuda.ProductSpec) bool { return true }, Err: device.ErrLost}
	b, err := backends.For(on(t, l))
	require.NoError(t, err)
	i, in := withBias(rand.New(rand.NewPCG(5, 9)))
	_, err = b.Prepare(i, []kernels.Type{in[0].Type, in[1].Type, in[2].Type})
	require.ErrorIs(t, err, device.ErrLost)
}

// A library's workspace is the one thing without which the product can be had all the same.
func TestWhereThereIsNoMemoryForALibrarysWorkspaceKernelsMultiply(t *testing.T) {
	const bytes, space = 1 << 20, 1 << 19
	l := &library{Machine: ptxtest.New(ptx.Config{Bytes: bytes}), T: t, Ran: map[cuda.Epilogue]int{}, Space: space}
	d := on(t, l)
	i, in := withBias(rand.New(rand.NewPCG(5, 10)))
	kerneltest.Check(t, d, i, in...)
	require.NotEmpty(t, l.Ran)
	require.Len(t, backends.Ways(d), 1)

	var held []*device.Buffer
	for {
		b, err := d.Alloc(space / 4)
		if errors.Is(err, device.ErrMemory) {
			break
		}
		require.NoError(t, err)
		held = append(held, b)
	}
	require.NoError(t, held[0].Release())
	clear(l.Ran)
	kerneltest.Check(t, d, i, in...)
	require.Empty(t, l.Ran)
	for _, w := range backends.Ways(d) {
		if w.By == byKernels {
			require.Equal(t, whyNoMemory, w.Why)
			require.Equal(t, "out of device memory: product has a workspace of 524288 bytes", w.Last)
		}
	}
	for _, b := range held[1:] {
		require.NoError(t, b.Release())
	}
	kerneltest.Check(t, d, i, in...)
	require.NotEmpty(t, l.Ran, "there is memory again")
}

func TestGraphsAndWhatStoodInTheirWayAreCounted(t *testing.T) {
	for why, c := range map[string]struct {
		err  error
		want kernels.Way
	}{
		"none":   {nil, kernels.Way{Work: "graph", By: "recording", Times: 1}},
		"memory": {device.ErrMemory, kernels.Way{Work: "graph", By: "launches", Why: whyGraphMemory, Last: "out of device memory", Times: 1}},
		"more":   {errors.New("cannot record"), kernels.Way{Work: "graph", By: "launches", Why: whyNoRecording, Last: "cannot record", Times: 1}},
	} {
		t.Run(why, func(t *testing.T) {
			times := int64(1)
			if c.err == nil {
				times = 0
			}
			d := on(t, cannot(c.err, times))
			r, b := chain(t, d, 5), operand(t, d, 0, 0, 0, 0)
			for range 4 {
				require.NoError(t, r.Run([]*device.Buffer{b}))
			}
			require.Equal(t, c.want, backends.Ways(d)[0])
			require.NoError(t, b.Release())
		})
	}
}

func TestBFloat16WithoutTensorCoresIsCounted(t *testing.T) {
	d := brief(t, ptxtest.New(ptx.Config{Arch: 75}))
	r := rand.New(rand.NewPCG(6, 5))
	kerneltest.Check(t, d, kernels.MatMul{}, drawn(r, device.Float32, 6, 5), drawn(r, device.Float32, 5, 7))
	require.Equal(t, kernels.Way{Work: "bfloat16 product", By: "float32", Why: whyNoCores, Times: 2}, backends.Ways(d)[0])
}

//go:build cgo && linux && (amd64 || arm64)

package gpus_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/collective/gpus"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/internal/thresholds"
	"github.com/weft-project/weft/kernels/gpu"
	"github.com/weft-project/weft/transport/simnet"
)

// cards is a group whose members have a GPU of the interpreter each, all on one host.
type cards struct {
	*job
	net      *simnet.Net
	gs       []*collective.Group
	devs     []*device.Accelerator
	attached []*gpus.Attached
}

// card is a device of the interpreter, with kernels.
func card(t *testing.T, id device.ID, c ptx.Config) *device.Accelerator {
	t.Helper()
	m := ptxtest.New(c)
	d, err := gpu.On(m, id)
	require.NoError(t, err)
	ptxtest.Watch(t, m, d)
	return d
}

// small are windows whose sizes are crossed soon.
var small = gpus.Config{NCCL: gpus.Off}.WithWindow(4096, 1024)

func playCards(t *testing.T, size int, cfg gpus.Config) *cards {
	t.Helper()
	net, host := rpctest.Net(), new(ptx.Host)
	p := &cards{job: &job{workers: rpctest.World(t, net, size)}, net: net, attached: make([]*gpus.Attached, size)}
	for r := range size {
		p.devs = append(p.devs, card(t, device.CUDA(r), ptx.Config{Host: host, Bytes: 160 << 20, Late: rand.New(rand.NewPCG(uint64(r), uint64(size)))}))
		d, err := gpus.On(p.devs[r])
		require.NoError(t, err)
		p.devices = append(p.devices, d)
	}
	p.gs = p.group(t, "world", p.ranks())
	every(t, p.ranks(), func(r int) (err error) {
		p.attached[r], err = gpus.Attach(t.Context(), p.gs[r], p.devices[r], cfg)
		return err
	})
	t.Cleanup(func() {
		every(t, p.ranks(), func(r int) error { return p.attached[r].Close(context.Background()) })
		for _, a := range p.attached {
			open, own := a.Windows()
			require.Zero(t, open)
			require.False(t, own)
		}
	})
	return p
}

// elements are bytes of so many elements of a dtype, among them zeros of both signs, infinities
// and NaNs.
func elements(r *rand.Rand, d device.Dtype, n int) []byte {
	x := make([]float64, n)
	for i := range x {
		x[i] = r.NormFloat64() * 100
		if r.IntN(4) == 0 {
			x[i] = []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), 3e38}[r.IntN(6)]
		}
	}
	return bytesOf(d, x)
}

func bytesOf(d device.Dtype, x []float64) []byte {
	switch d {
	case device.Float32:
		return device.Bytes(converted[float32](x))
	case device.Float64:
		return device.Bytes(x)
	case device.Int32:
		return device.Bytes(converted[int32](x))
	case device.Int64:
		return device.Bytes(converted[int64](x))
	}
	return halves(converted[float32](x))
}

func converted[T device.Number](x []float64) []T {
	y := make([]T, len(x))
	for i, v := range x {
		y[i] = T(v)
	}
	return y
}

// halves rounds to bfloat16, and whole is what they are.
func halves(x []float32) []byte {
	mem := make([]byte, 2*len(x))
	for i, v := range x {
		bits := math.Float32bits(v)
		if v == v {
			bits += 0x7fff + bits>>16&1
		}
		mem[2*i], mem[2*i+1] = byte(bits>>16), byte(bits>>24)
	}
	return mem
}

func whole(mem []byte) []byte {
	x := make([]float32, len(mem)/2)
	for i := range x {
		x[i] = math.Float32frombits(uint32(mem[2*i])<<16 | uint32(mem[2*i+1])<<24)
	}
	return device.Bytes(x)
}

// onHost is what the host makes of arrays.
func onHost(op collective.Op, d device.Dtype, in [][]byte) []byte {
	if d != device.BFloat16 {
		out := make([]byte, len(in[0]))
		op.Fold(d, out, in...)
		return out
	}
	var wide [][]byte
	for _, x := range in {
		wide = append(wide, whole(x))
	}
	return halves(device.As[float32](onHost(op, device.Float32, wide)))
}

// same compares numbers by their bits, but for NaNs, and the signs of zeros that are the least or
// the most: there the host's loops differ among processors.
func same(op collective.Op, d device.Dtype, a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	if d == device.BFloat16 {
		d, a, b = device.Float32, whole(a), whole(b)
	}
	switch d {
	case device.Float32:
		return alike(op, device.As[float32](a), device.As[float32](b))
	case device.Float64:
		return alike(op, device.As[float64](a), device.As[float64](b))
	}
	return string(a) == string(b)
}

func alike[T device.Float](op collective.Op, a, b []T) bool {
	for i, v := range a {
		w, zero := b[i], v == 0 && (op == collective.Min || op == collective.Max)
		if v != w && (v == v || w == w) || v == v && !zero && math.Signbit(float64(v)) != math.Signbit(float64(w)) {
			return false
		}
	}
	return true
}

var (
	dtypes = []device.Dtype{device.Float32, device.Float64, device.Int32, device.Int64, device.BFloat16}
	opsAll = []collective.Op{collective.Sum, collective.Mean, collective.Prod, collective.Min, collective.Max, collective.And, collective.Or,
		collective.Xor, collective.Scaled(-0.3)}
)

// legal says whether elements have an operation.
func legal(op collective.Op, d device.Dtype) bool {
	if d == device.BFloat16 {
		d = device.Float32
	}
	return op.Check(d) == nil
}

func TestTheKernelsFoldToTheBitsOfTheHost(t *testing.T) {
	dev := card(t, device.CUDA(0), ptx.Config{})
	mem := dev.Memory().(device.Folder)
	r := rand.New(rand.NewPCG(8, 1))
	for _, d := range dtypes {
		for _, op := range opsAll {
			for _, n := range []int{1, 255, 256, 257, 700} {
				if !legal(op, d) {
					continue
				}
				in, at := make([][]byte, 1+r.IntN(device.MostFolded)), []uintptr(nil)
				for k := range in {
					in[k] = elements(r, d, n)
					b, err := dev.Alloc(len(in[k]))
					require.NoError(t, err)
					defer b.Release() //nolint:errcheck // ours
					require.NoError(t, dev.Upload(b, 0, in[k]))
					at = append(at, b.Addr())
				}
				fn, factor := op.Code()
				to := at[r.IntN(len(at))] // in place
				require.NoError(t, mem.Fold(fn, factor, d, n, to, at...))
				got := make([]byte, len(in[0]))
				require.NoError(t, mem.Download(got, to))
				require.True(t, same(op, d, onHost(op, d, in), got), "%v of %d arrays of %d %v", op, len(in), n, d)
			}
		}
	}
	require.Error(t, mem.Fold(1, 0, device.Float32, 1, 0))
	require.Error(t, mem.Fold(1, 0, device.Float32, 1, 0, make([]uintptr, device.MostFolded+1)...))
	require.Error(t, mem.Fold(1, 0, device.Invalid, 1, 0, 0))
}

// reduce has all members reduce buffers of some bytes, and compares with the host.
func (p *cards) reduce(t *testing.T, r *rand.Rand, op collective.Op, d device.Dtype, lens ...int) {
	t.Helper()
	in := make([][][]byte, len(lens)) // by buffer and rank
	for i, n := range lens {
		for range p.gs {
			in[i] = append(in[i], elements(r, d, n))
		}
	}
	p.compare(t, op, d, in)
}

// compare is reduce of what members have in each buffer.
func (p *cards) compare(t *testing.T, op collective.Op, d device.Dtype, in [][][]byte) {
	t.Helper()
	every(t, p.ranks(), func(r int) error {
		bufs, release, err := p.put(r, in)
		defer release()
		if err != nil {
			return err
		}
		out, err := p.gs[r].AllReduceBuffers(t.Context(), op, d, bufs...).Wait(t.Context())
		if err != nil {
			return err
		}
		for i, b := range out {
			got := make([]byte, b.Len())
			if err := p.devs[r].Download(got, b, 0); err != nil {
				return err
			}
			if !same(op, d, onHost(op, d, in[i]), got) {
				return fmt.Errorf("%v of buffer %d, %d bytes of %v, is wrong", op, i, len(got), d)
			}
		}
		return nil
	})
}

// put makes a member's buffers of what it has in each.
func (p *cards) put(r int, in [][][]byte) (bufs []*device.Buffer, release func(), err error) {
	release = func() {
		for _, b := range bufs {
			_ = b.Release() // ours
		}
	}
	for i := range in {
		b, err := p.devs[r].Alloc(len(in[i][r]))
		if err != nil {
			return bufs, release, err
		}
		bufs = append(bufs, b)
		if err := p.devs[r].Upload(b, 0, in[i][r]); err != nil {
			return bufs, release, err
		}
	}
	return bufs, release, nil
}

// went is by what way the last buffers went, on all members.
func (p *cards) went(t *testing.T) string {
	t.Helper()
	ways := map[string]bool{}
	for _, g := range p.gs {
		way := ""
		for _, e := range g.Trace() {
			if e.Way != "" {
				way = e.Way
			}
		}
		ways[way] = true
	}
	require.Len(t, ways, 1)
	for way := range ways {
		return way
	}
	return ""
}

func TestBuffersOnGPUsOfOneHostAreReducedThereToTheBitsOfTheHost(t *testing.T) {
	for size := 1; size <= 4; size++ {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			p := playCards(t, size, small)
			require.Equal(t, []string{"CUDA IPC"}, p.attached[0].Ways())
			require.ErrorIs(t, p.attached[0].Without(), gpus.ErrWithout)
			r := rand.New(rand.NewPCG(uint64(size), 3))
			for i := range soak.Cases(25) {
				d, op := dtypes[i%len(dtypes)], opsAll[r.IntN(len(opsAll))]
				for !legal(op, d) {
					op = opsAll[r.IntN(len(opsAll))]
				}
				edge := []int{8, 256, 1024, 4096, 8192, 12288}[r.IntN(6)] / d.Size()
				lens := []int{max(edge-1+r.IntN(3), 0), r.IntN(9), 0, 1, r.IntN(700)}[:1+r.IntN(5)]
				r.Shuffle(len(lens), func(i, k int) { lens[i], lens[k] = lens[k], lens[i] })
				p.reduce(t, r, op, d, append(lens, 1)...)
				require.Equal(t, "CUDA IPC", p.went(t))
			}
			p.reduce(t, r, collective.Sum, device.Float32)
			p.reduce(t, r, collective.Sum, device.Float32, 0)
			require.Equal(t, "host", p.went(t), "there is nothing to reduce")
		})
	}
}

func TestBuffersOfSizesAroundTheThresholdsAreReducedOnTheGPUs(t *testing.T) {
	const lowered = 256
	p := playCards(t, 2, gpus.Config{NCCL: gpus.Off}.WithWindow(gpus.Half/lowered, gpus.OneShot/lowered))
	r := rand.New(rand.NewPCG(5, 3))
	sizes := thresholds.Around(thresholds.Windows)
	for range sizes.Len() {
		at, side := sizes.Next()
		at.Value /= lowered
		p.reduce(t, r, collective.Sum, device.Float32, at.Elems(4, side))
		require.Equal(t, "CUDA IPC", p.went(t))
	}
	require.Empty(t, sizes.Missing())
}

func TestMembersThatReduceDifferentBuffersAllHearOfItAndGoOn(t *testing.T) {
	p := playCards(t, 2, small)
	for name, change := range map[string]func(op *collective.Op, d *device.Dtype, n *int){
		"op": func(op *collective.Op, _ *device.Dtype, _ *int) { *op = collective.Prod }, "size": func(_ *collective.Op, _ *device.Dtype, n *int) { *n = 4 },
		"dtype": func(_ *collective.Op, d *device.Dtype, _ *int) { *d = device.Int32 },
	} {
		errs := all(p.ranks(), func(r int) error {
			op, d, n := collective.Sum, device.Float32, 8
			if r == 1 {
				change(&op, &d, &n)
			}
			b, err := p.devs[r].Alloc(n)
			if err != nil {
				return err
			}
			defer b.Release() //nolint:errcheck // ours
			if err := p.devs[r].Upload(b, 0, make([]byte, n)); err != nil {
				return err
			}
			_, err = p.gs[r].AllReduceBuffers(t.Context(), op, d, b).Wait(t.Context())
			return err
		})
		for r, err := range errs {
			require.ErrorIs(t, err, collective.ErrMismatch, "%s, rank %d", name, r)
			require.ErrorContains(t, err, "attach_test.go:")
		}
	}
	p.reduce(t, rand.New(rand.NewPCG(1, 1)), collective.Sum, device.Float32, 5)
	require.Equal(t, "CUDA IPC", p.went(t))
}

func TestAWindowIsGivenBackWhenAllOthersHaveClosedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playCards(t, 2, small)
		c, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorContains(t, p.attached[0].Close(c), `members of group "world" have memory of this one open`)
		_, own := p.attached[0].Windows()
		require.True(t, own)
		require.NoError(t, p.attached[1].Close(t.Context()), "the other has closed it")
		require.NoError(t, p.attached[0].Close(t.Context()))
		p.reduce(t, rand.New(rand.NewPCG(1, 1)), collective.Sum, device.Float32, 5)
		require.Equal(t, "host", p.went(t))
	})
}

func TestAMemberWhoseBuffersLieElsewhereHasAllGoByWayOfTheHost(t *testing.T) {
	p := playCards(t, 3, small)
	in := make([][]byte, 3)
	for r := range in {
		in[r] = device.Bytes([]float32{1, 2, float32(r)})
	}
	every(t, p.ranks(), func(r int) error {
		dev := device.Device(p.devs[r])
		if r == 1 {
			dev = device.Host()
		}
		b, err := dev.Alloc(12)
		if err != nil {
			return err
		}
		defer b.Release() //nolint:errcheck // ours
		if err := dev.Upload(b, 0, in[r]); err != nil {
			return err
		}
		if _, err = p.gs[r].AllReduceBuffers(t.Context(), collective.Sum, device.Float32, b).Wait(t.Context()); err != nil {
			return err
		}
		got := make([]byte, 12)
		if err := dev.Download(got, b, 0); err != nil {
			return err
		}
		if string(got) != string(onHost(collective.Sum, device.Float32, in)) {
			return fmt.Errorf("it is %v", device.As[float32](got))
		}
		return nil
	})
	require.Equal(t, "host", p.went(t))
}

func TestManyAtOnceInAnyOrderAreEachReducedOnce(t *testing.T) {
	p := playCards(t, 3, small)
	p.manyAtOnce(t, 700, 100)
	require.Equal(t, "CUDA IPC", p.went(t))
}

// One member has no piece to add up, and reads the others' while these go on.
func TestManyAtOnceAreRightWherePiecesAreEmpty(t *testing.T) {
	p := playCards(t, 4, small)
	p.manyAtOnce(t, 129, 0)
	require.Equal(t, "CUDA IPC", p.went(t))
}

// manyAtOnce reduces buffers of some elements, each of more than the one before, in any order.
func (p *cards) manyAtOnce(t *testing.T, elems, more int) {
	t.Helper()
	const ops = 12
	every(t, p.ranks(), func(r int) error {
		order := rand.New(rand.NewPCG(uint64(r), 1)).Perm(ops)
		errs := all(order, func(k int) error {
			c := collective.Scope(t.Context(), fmt.Sprint("layer", k))
			in := [][][]byte{nil}
			for range p.gs {
				in[0] = append(in[0], device.Bytes(converted[int64](make([]float64, elems+more*k))))
			}
			device.As[int64](in[0][r])[k] = int64(k + r)
			bufs, release, err := p.put(r, in)
			defer release()
			if err != nil {
				return err
			}
			if _, err = p.gs[r].AllReduceBuffers(c, collective.Sum, device.Int64, bufs...).Wait(c); err != nil {
				return err
			}
			got := make([]byte, bufs[0].Len())
			if err := p.devs[r].Download(got, bufs[0], 0); err != nil {
				return err
			}
			if x := device.As[int64](got); x[k] != int64(len(p.gs)*k+len(p.gs)*(len(p.gs)-1)/2) {
				return fmt.Errorf("operation %d gives %d", k, x[k])
			}
			return nil
		})
		var err error
		for _, e := range errs {
			err = errors.Join(err, e)
		}
		return err
	})
}

func TestAMemberThatIsLostInTheMiddleIsNamedAndAllMemoryIsGivenBack(t *testing.T) {
	for _, bytes := range []int{1024, 4096, 40_960} { // one shot, two, and many halves
		synctest.Test(t, func(t *testing.T) {
			p := playCards(t, 3, small)
			in := [][][]byte{{make([]byte, bytes), make([]byte, bytes), make([]byte, bytes)}}
			deadly := rand.IntN(4)
			errs := all(p.ranks(), func(r int) error {
				bufs, release, err := p.put(r, in)
				defer release()
				for i := 0; err == nil; i++ {
					if r == 0 && i == deadly {
						go p.net.Kill(rpctest.Host(2))
					}
					_, err = p.gs[r].AllReduceBuffers(t.Context(), collective.Sum, device.Float32, bufs...).Wait(t.Context())
				}
				return err
			})
			for r := range 2 {
				var lost *collective.LostError
				require.ErrorAs(t, errs[r], &lost, "rank %d", r)
				require.Equal(t, "worker2", lost.Worker)
			}
			every(t, p.ranks(), func(r int) error { return p.attached[r].Close(t.Context()) })
		})
	}
}

// pending are the operations that a member waits in.
func pending(g *collective.Group) (all []collective.Entry) {
	for _, e := range g.Trace() {
		if e.State == "pending" && len(e.Waits) > 0 {
			all = append(all, e)
		}
	}
	return all
}

func TestAnOperationThatIsGivenUpLeavesTheBuffersAndTheNextGoByTheHost(t *testing.T) {
	p := playCards(t, 2, small)
	c, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	go func() {
		for len(pending(p.gs[0])) == 0 {
			runtime.Gosched()
		}
		cancel(enough)
	}()
	errs, is := p.attempt(func(int) context.Context { return c }, []int{0})
	require.ErrorIs(t, errs[0], enough)
	require.Equal(t, []float32{1, 2, 0}, is[0])
	errs, _ = p.attempt(func(int) context.Context { return t.Context() }, []int{1})
	require.ErrorIs(t, errs[1], collective.ErrAborted)
	for range 2 {
		errs, is = p.attempt(func(int) context.Context { return t.Context() }, p.ranks())
		for r := range errs {
			require.NoError(t, errs[r])
			require.Equal(t, []float32{2, 4, 1}, is[r])
		}
	}
}

func TestWhatStandsBehindAnOperationThatHasFailedIsNotReducedByTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playCards(t, 2, small)
		var release []func()
		for _, a := range p.attached {
			release = append(release, a.Block())
		}
		broken := errors.New("the one before has failed")
		go func() {
			synctest.Wait() // both stand in the queue
			p.attached[0].End(broken)
			for _, let := range release {
				let()
			}
		}()
		errs, is := p.attempt(func(int) context.Context { return t.Context() }, p.ranks())
		require.ErrorIs(t, errs[0], broken)
		require.ErrorIs(t, errs[1], collective.ErrAborted)
		for r := range is {
			require.Equal(t, []float32{1, 2, float32(r)}, is[r])
		}
		p.reduce(t, rand.New(rand.NewPCG(1, 1)), collective.Sum, device.Float32, 5)
		require.Equal(t, "host", p.went(t))
	})
}

func TestAnOperationThatFailsInTheWindowEndsItOnAllThatWereAtIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playCards(t, 2, small)
		let := p.attached[1].Block()
		c, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		go func() {
			synctest.Wait() // the first member's numbers are there, and it waits for the other's
			cancel(enough)
			synctest.Wait()
			let()
		}()
		errs, is := p.attempt(func(r int) context.Context { return []context.Context{c, t.Context()}[r] }, p.ranks())
		require.ErrorIs(t, errs[0], enough)
		require.ErrorIs(t, errs[1], collective.ErrAborted)
		for r := range is {
			require.Equal(t, []float32{1, 2, float32(r)}, is[r])
		}
		p.reduce(t, rand.New(rand.NewPCG(1, 1)), collective.Sum, device.Float32, 5)
		require.Equal(t, "host", p.went(t))
		synctest.Wait()
		for _, a := range p.attached {
			_, own := a.Windows()
			require.False(t, own, "it is given back, and nobody has closed it")
		}
	})
}

func TestMoreMembersThanAKernelReadsGoByTheHost(t *testing.T) {
	p := playCards(t, device.MostFolded+1, small)
	require.ErrorContains(t, p.attached[3].Without(), "17 members; expected 16 at most")
	require.Empty(t, p.attached[3].Ways())
	p.reduce(t, rand.New(rand.NewPCG(1, 1)), collective.Sum, device.Float32, 5)
	require.Equal(t, "host", p.went(t))
}

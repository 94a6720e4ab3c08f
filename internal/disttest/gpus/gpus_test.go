package gpus

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/testgpu"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/gpu"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// patience bounds what a test waits for another process.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	var here resident
	proctest.Main(m, map[string]proctest.Command{"join": proctest.Do(here.join), "leave": proctest.Do(here.leave), "sum": proctest.Do(here.sum), "must": proctest.Do(here.must)})
}

// invitation is what the other process must know.
type invitation struct {
	Store, Token string
	Rank         int
	Lanes        []string
	Fake         bool // their GPU is the fake driver's
}

// resident is a worker with two devices, which are one GPU; its calls swap them.
type resident struct {
	*rpc.Worker
	devices []*device.Accelerator
	store   store.Store
	weight  *autodiff.Tensor // of the function of this worker
	other   *proctest.Proc
	told    chan struct{}
}

type pair struct{ A, B *autodiff.Tensor }

// weigh squares what lands on cuda:1, and multiplies what lands on cuda:0 by the callee's weight.
var weigh = func(r *resident) *rpc.Func[pair, pair] {
	return rpc.Define("weigh", func(_ context.Context, in pair) (pair, error) {
		if in.A.Device() != device.CUDA(1) || in.B.Device() != device.CUDA(0) {
			return in, errors.New("the tensors came to " + in.A.Device().String() + " and " + in.B.Device().String())
		}
		return pair{autodiff.Mul(in.A, in.A), autodiff.Mul(in.B, r.weight)}, nil
	})
}

// pick gives rows of a table, on the callee's device.
var pick = rpc.Define("pick", func(_ context.Context, in pair) (*autodiff.Tensor, error) { return autodiff.Embedding(in.A, in.B), nil })

var weightOf = func(r *resident) *rpc.Func[struct{}, optim.Param] {
	return rpc.Define("weight", func(c context.Context, _ struct{}) (optim.Param, error) { return rpc.NewRRef(c, r.weight) })
}

// outside lets a process that is no test open its GPU: a failure to is a panic, which the test
// hears of.
type outside struct{ testing.TB }

func (outside) Helper()        {}
func (outside) Fatal(v ...any) { panic(v) }

// open opens the GPU, or a fake driver's.
func open(fake bool) (cuda.Driver, error) {
	if fake {
		return openFake()
	}
	return testgpu.Open(outside{}, ptx.Config{}), nil
}

func (r *resident) join(c context.Context, p invitation) (_ struct{}, err error) {
	none := struct{}{}
	for k := range 2 {
		driver, err := open(p.Fake)
		if err != nil {
			return none, err
		}
		d, err := gpu.On(driver, device.CUDA(k))
		if err != nil {
			return none, err
		}
		r.devices = append(r.devices, d)
	}
	r.weight = autodiff.To(autodiff.New([]float32{3}), r.devices[0]).RequireGrad()
	id, err := transport.IdentityFromToken(p.Token, rpc.NoJob, "worker", time.Now)
	if err != nil {
		return none, err
	}
	quiet := slog.New(slog.DiscardHandler)
	net, err := transport.New(transport.Config{Identity: id, Lanes: p.Lanes, Devices: []device.Device{r.devices[0], r.devices[1]}, Logger: quiet})
	if err != nil {
		return none, err
	}
	if r.store, err = store.Dial(c, store.ClientConfig{Addr: p.Store}); err != nil {
		return none, err
	}
	swap := device.Map{device.CUDA(0): device.CUDA(1), device.CUDA(1): device.CUDA(0)}
	r.Worker, err = rpc.Join(c, rpc.Config{
		Store: r.store, Rank: p.Rank, WorldSize: 2, Network: net, Functions: append(optim.Functions(), weigh(r), weightOf(r), pick), Logger: quiet,
		Devices: []device.Device{r.devices[0], r.devices[1]}, DeviceMaps: map[string]device.Map{[]string{"worker1", "worker0"}[p.Rank]: swap},
	})
	return none, err
}

func (r *resident) leave(c context.Context, _ struct{}) (struct{}, error) {
	errs := []error{r.Leave(c), r.Worker.Close(), r.store.Close()}
	for _, d := range r.devices {
		errs = append(errs, d.Close())
	}
	r.devices = nil
	return struct{}{}, errors.Join(errs...)
}

// together joins this process and another in a job whose links use the lanes.
func together(t *testing.T, lanes []string, fake bool) *resident {
	t.Helper()
	server, err := store.Serve(store.ServerConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	c, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	other, r, token := proctest.Start(t, nil), new(resident), rand.Text()
	r.other = other
	joined := make(chan error, 1)
	go func() { joined <- other.Ask(c, "join", invitation{server.Addr(), token, 1, lanes, fake}, nil) }()
	_, err = r.join(c, invitation{server.Addr(), token, 0, lanes, fake})
	require.NoError(t, err)
	require.NoError(t, <-joined)
	t.Cleanup(func() {
		go func() { joined <- other.Ask(c, "leave", struct{}{}, nil) }()
		_, err := r.leave(c, struct{}{})
		if err = errors.Join(err, <-joined); !errors.Is(err, proctest.ErrEnded) { // it was killed
			assert.NoError(t, err)
		}
	})
	return r
}

func TestTensorsGoBetweenTwoProcessesOnOneGPUByTheMapAndGradientsComeBack(t *testing.T) {
	for _, lanes := range [][]string{nil, {transport.LaneLocal, transport.LaneQUIC}, {transport.LaneBulk, transport.LaneQUIC}, {transport.LaneQUIC}} {
		t.Run("lanes "+strings.Join(lanes, " "), func(t *testing.T) {
			r := together(t, lanes, false)
			large := 100_001
			if testgpu.Real() {
				large = 8<<20 + 1
			}
			for _, n := range []int{0, 1, 3, large} {
				for range 3 { // memory that is used again is read and written while earlier work is under way
					r.exchange(t, n)
				}
			}
			r.stepWeight(t)
			if testgpu.Real() { // the interpreter is another GPU in each process
				r.requireLaneCUDA(t, lanes == nil)
			}
		})
	}
}

// requireLaneCUDA says whether tensors went both ways by lane cuda.
func (r *resident) requireLaneCUDA(t *testing.T, want bool) {
	t.Helper()
	l := r.Lanes()[0].Lanes[0]
	require.Equal(t, want, l.Name == transport.LaneCUDA && l.Sent > 0 && l.Received > 0, "%+v", r.Lanes())
}

// A row that is not there is found on the GPU, after the function has returned: who sends what came
// of it says so, on every lane, and nobody gets the tensor.
func TestATensorWithABadRowIsNotSentAndTheErrorNamesTheLine(t *testing.T) {
	for _, lanes := range [][]string{nil, {transport.LaneLocal}, {transport.LaneBulk}, {transport.LaneQUIC}} {
		t.Run("lanes "+strings.Join(lanes, " "), func(t *testing.T) {
			r := together(t, lanes, false)
			const width = 8000 // a row is larger than what travels in its message
			r.exchange(t, width)
			table := autodiff.To(autodiff.New(make([]float32, 3*width), 3, width), r.devices[0])
			ids := func(id int64) *autodiff.Tensor { return autodiff.To(autodiff.New([]int64{0, id}), r.devices[0]) }
			for range 3 {
				require.NoError(t, r.Pass(t.Context(), func(c context.Context) error {
					_, file, line, _ := runtime.Caller(0)
					bad := autodiff.Embedding(table, ids(3))
					_, err := pick.Call(c, "worker1", pair{bad, ids(0)})
					var index *kernels.IndexError
					require.ErrorAs(t, err, &index)
					require.Equal(t, []int64{3, 3}, []int64{index.ID, int64(index.N)})
					require.ErrorContains(t, err, fmt.Sprintf("%s:%d", file, line+1))

					_, err = pick.Call(c, "worker1", pair{table, ids(-1)})
					require.ErrorIs(t, err, kernels.ErrIndex, "the callee's, as if the function had failed")
					require.ErrorContains(t, err, "gpus_test.go")

					out, err := pick.Call(c, "worker1", pair{table, ids(2)})
					require.NoError(t, err, "it did not come of that")
					requireEach(t, out, 2*width, func(int) float32 { return 0 })
					return nil
				}))
			}
		})
	}
}

// exchange sends tensors of n elements on both devices, and checks results and gradients.
func (r *resident) exchange(t *testing.T, n int) {
	t.Helper()
	values := make([]float32, n)
	for k := range values {
		values[k] = float32(k%97) / 8
	}
	to := func(k int) *autodiff.Tensor { return autodiff.To(autodiff.New(values, n), r.devices[k]).RequireGrad() }
	a, b := to(0), to(1)
	require.NoError(t, r.Pass(t.Context(), func(c context.Context) error {
		out, err := weigh(r).Call(c, "worker1", pair{autodiff.Scale(a, 2), autodiff.Scale(b, 2)})
		require.NoError(t, err)
		require.Equal(t, []device.ID{device.CUDA(0), device.CUDA(1)}, []device.ID{out.A.Device(), out.B.Device()})
		requireEach(t, out.A, n, func(k int) float32 { return 4 * values[k] * values[k] })
		requireEach(t, out.B, n, func(k int) float32 { return 6 * values[k] })
		require.NoError(t, ctx.Backward(c, autodiff.Sum(out.A), autodiff.Sum(out.B)))
		grads, err := ctx.Gradients(c)
		require.NoError(t, err)
		require.Equal(t, []device.ID{device.CUDA(0), device.CUDA(1)}, []device.ID{grads[a].Device(), grads[b].Device()})
		requireEach(t, grads[a], n, func(k int) float32 { return 8 * values[k] })
		requireEach(t, grads[b], n, func(int) float32 { return 6 })
		return nil
	}))
}

func requireEach(t *testing.T, x *autodiff.Tensor, n int, want func(k int) float32) {
	t.Helper()
	got, err := autodiff.Values[float32](x)
	require.NoError(t, err)
	require.Len(t, got, n)
	for k, v := range got {
		if v != want(k) {
			require.Equal(t, want(k), v, "element %d of %d", k, n)
		}
	}
}

// stepWeight has the other worker's weight stepped where it lies.
func (r *resident) stepWeight(t *testing.T) {
	t.Helper()
	c := r.Context(t.Context())
	w, err := weightOf(r).Call(c, "worker1", struct{}{})
	require.NoError(t, err)
	opt, err := optim.NewDistributed(c, optim.SGD{LR: 0.5}, w)
	require.NoError(t, err)
	defer opt.Release()
	one := autodiff.To(autodiff.New([]float32{1}), r.devices[1])
	call := func(c context.Context) *autodiff.Tensor {
		out, err := weigh(r).Call(c, "worker1", pair{autodiff.To(one, r.devices[0]), one})
		require.NoError(t, err)
		return out.B
	}
	require.NoError(t, r.Pass(c, func(c context.Context) error {
		require.NoError(t, ctx.Backward(c, autodiff.Sum(call(c))))
		return opt.Step(c)
	}))
	require.NoError(t, r.Pass(c, func(c context.Context) error {
		requireEach(t, call(c), 1, func(int) float32 { return 2.5 })
		return nil
	}))
}

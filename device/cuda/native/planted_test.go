//go:build gpu && linux && (amd64 || arm64)

package native_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/native"
	"github.com/weft-project/weft/internal/fakecuda"
	"github.com/weft-project/weft/internal/gpumem"
	"github.com/weft-project/weft/internal/soak"
)

// walk makes every call that the package makes, on a GPU that it opens, until one fails. What it
// was given it gives back.
func (w *walker) walk() (err error) {
	if _, err := native.List(); err != nil {
		return err
	}
	d, err := native.Open(0)
	if err != nil {
		return err
	}
	w.d = d
	defer func() { err = errors.Join(err, w.back()) }()
	for _, step := range []func() error{w.begin, w.copies, w.kernels, w.graphs, w.products, w.shares, w.neighbors, w.maps} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// walker is what a walk holds, and how it gives that back.
type walker struct {
	met    int // what was planted, before it began to give back
	d      cuda.Driver
	at     uintptr
	pinned []byte
	s      cuda.Stream
	closes []func() error
}

func (w *walker) later(close func() error) { w.closes = append(w.closes, close) }

func (w *walker) back() error {
	w.met = gpu.Seen().Hits
	var errs []error
	if w.s != nil {
		errs = append(errs, w.s.Sync())
	}
	for _, close := range slices.Backward(w.closes) {
		errs = append(errs, close())
	}
	return errors.Join(append(errs, w.d.Close())...)
}

func (w *walker) begin() (err error) {
	if _, err = w.d.Room(); err != nil {
		return err
	}
	if w.at, err = w.d.Alloc(4096); err != nil {
		return err
	}
	w.later(func() error { return w.d.Free(w.at) })
	if w.pinned, err = w.d.Pin(4096); err != nil {
		return err
	}
	w.later(func() error { return w.d.Unpin(w.pinned) })
	s, err := w.d.Stream()
	if err != nil {
		return err
	}
	w.s = s
	w.later(w.s.Close)
	return nil
}

func (w *walker) copies() error {
	var timers [2]cuda.Timer
	for k := range timers {
		t, err := w.d.Timer()
		if err != nil {
			return err
		}
		w.later(t.Close)
		timers[k] = t
	}
	for _, call := range []func() error{
		func() error { return w.s.Record(timers[0]) },
		func() error { return w.s.CopyIn(w.at, w.pinned[:8]) },
		func() error { return w.s.Copy(w.at+1024, w.at, 8) },
		func() error { return w.s.Zero(w.at, 4096) },
		func() error { return w.s.CopyOut(w.pinned[:8], w.at) },
		func() error { return w.s.Wait(timers[0]) },
		func() error { return w.s.Record(timers[1]) },
		timers[1].Sync,
		func() error { _, err := timers[1].Since(timers[0]); return err },
		w.s.Sync,
	} {
		if err := call(); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) kernel() (cuda.Func, error) {
	m, err := w.d.Load([]byte(ptx))
	if err != nil {
		return nil, err
	}
	w.later(m.Unload)
	return m.Func("double", 64<<10)
}

func (w *walker) kernels() error {
	f, err := w.kernel()
	if err != nil {
		return err
	}
	var l cuda.List
	add(&l, f, w.at, w.at, 1)
	return w.s.Run(&l)
}

func (w *walker) graphs() error {
	g, err := w.s.Capture(func() error { return w.s.Zero(w.at, 8) })
	if err != nil {
		return err
	}
	w.later(g.Close)
	return w.s.Replay(g)
}

func (w *walker) products() error {
	for _, s := range []cuda.ProductSpec{
		{M: 8, N: 8, K: 8, Epilogue: cuda.ReLUAuxBias}, {M: 4, N: 4, K: 4, Batch: 2, StrideA: 16, StrideB: 16, StrideD: 16},
		{M: 16, N: 16, K: 16, In: cuda.E4M3, TransB: true, ScaleA: 256, ScaleB: 256},
	} {
		p, err := w.d.(cuda.Multiplier).Product(s)
		if err != nil {
			return err
		}
		var l cuda.List
		l.AddProduct(p, w.at, w.at+256, w.at+512, w.at+512, w.at+1024, w.at+1280, w.at+2048)
		if err := w.s.Run(&l); err != nil {
			return err
		}
	}
	if _, _, err := native.Library(); err != nil {
		return err
	}
	return w.s.Sync()
}

// shares exports memory. What is imported is another process's: here it is refused.
func (w *walker) shares() error {
	h, err := w.d.Export(w.at)
	if err != nil {
		return err
	}
	if at, err := w.d.Import(h); err == nil {
		return errors.Join(errors.New("memory of the own process was imported"), w.d.Unimport(at))
	} else if !strings.Contains(err.Error(), "CUDA error 201") {
		return err
	}
	_, err = w.d.(gpumem.Ranger).Range(w.at)
	return err
}

func (w *walker) neighbors() error {
	other, err := native.Open(1)
	if err != nil {
		return err
	}
	w.later(other.Close)
	to, err := other.Alloc(64)
	if err != nil {
		return err
	}
	w.later(func() error { return other.Free(to) })
	if within, err := w.d.(cuda.Neighbor).Reach(other); err != nil || !within {
		return err
	}
	return errors.Join(w.s.(cuda.Courier).CopyTo(other, to, w.at, 64), w.s.Sync())
}

func (w *walker) maps() error {
	_, err := w.d.(cuda.Mapper).EncodeMap(tensorMap(w.at))
	return err
}

// unwalked are what the fake has for others: functions of a version that the driver's headers
// choose, names for people, and what takes two processes.
var unwalked = []string{"cuInit", "cuDeviceGetUuid", "cuGetErrorName", "cuIpcCloseMemHandle", "cublasLtGetStatusString"}

func TestTheFakeHasEveryFunctionThatThePackageCalls(t *testing.T) {
	var has []string
	for _, name := range fakecuda.Calls() {
		has = append(has, fakecuda.Plain(name))
	}
	named := map[string]bool{}
	for _, file := range []string{"calls.h", "lt.c", "driver.go", "event.go", "module.go", "multiplier.go", "native.go", "peer.go", "stream.go", "tensormap.go"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range regexp.MustCompile(`\b(cu[A-Z][a-z]\w+)\b`).FindAllString(string(text), -1) {
			named[fakecuda.Plain(found)] = true
		}
		for _, found := range regexp.MustCompile(`\bF\([^,]+, (\w+), \(`).FindAllStringSubmatch(string(text), -1) {
			named["cublasLt"+found[1]] = true
		}
	}
	require.Greater(t, len(named), 50)
	for name := range named {
		require.Contains(t, has, name)
	}
}

// forgiven is what may be refused without an error: nothing is lost by it, or nobody can do
// anything about it.
var forgiven = []string{"cuFuncGetParamInfo", "cuGraphDestroy", "cublasLtMatmulDescDestroy", "cublasLtMatrixLayoutDestroy", "cublasLtMatmulPreferenceDestroy",
	"cublasLtGetVersion", "cuGetErrorString"}

// elapsed is one of two names since CUDA 13, whose header makes it the other.
const elapsed, elapsedToo = "cuEventElapsedTime", "cuEventElapsedTime_v2"

func TestAnyCallThatFailsIsNamedAndWhatWasTakenIsGivenBack(t *testing.T) {
	gpu.Set("peers", 1)
	defer gpu.Set("peers", 0)
	_, err := native.Count() // the library is opened by the first who asks
	require.NoError(t, err)
	before := gpu.Seen()
	require.NoError(t, new(walker).walk())
	after := gpu.Seen()
	require.Equal(t, before.Left, after.Left)
	calls := 0
	for _, name := range fakecuda.Calls() {
		n := after.Calls[name] - before.Calls[name]
		calls += n
		if name == elapsed { // which of the two is called depends on the header
			n += after.Calls[elapsedToo] - before.Calls[elapsedToo]
		}
		require.True(t, name == elapsedToo || slices.Contains(unwalked, name) == (n == 0), name)
	}
	kinds := []string{"memory", "lost719", "46", "801"}
	for k := 1; k <= calls; k++ {
		for n := range min(len(kinds), soak.Cases(1)) { // each call once, in turns; in make soak with all kinds
			strike(t, k, kinds[(k+n)%len(kinds)])
		}
	}
}

// walkChild is a walk in a process of its own.
func walkChild() (err error) {
	if gpu, err = fakecuda.Opened(); err != nil {
		return err
	}
	gpu.Set("peers", 1)
	return new(walker).walk()
}

func TestADriverThatHangsOrCrashesInACallIsToldWithTheStack(t *testing.T) {
	type fault struct{ call, kind string }
	var all []fault
	_, err := native.Count() // the library is opened by the first who asks
	require.NoError(t, err)
	require.NoError(t, new(walker).walk())
	other := elapsedToo
	if gpu.Seen().Calls[elapsed] == 0 {
		other = elapsed
	}
	for _, call := range fakecuda.Calls() {
		if call == "cuInit" || call != other && !slices.Contains(unwalked, call) {
			for _, kind := range []string{"hang", "crash", "abort"} {
				all = append(all, fault{call, kind})
			}
		}
	}
	rand.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	for _, f := range all[:min(len(all), soak.Cases(10))] {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "WEFT_TEST_CHILD=walk", fakecuda.PlantEnv+"="+f.call+"@1:"+f.kind)
		out, err := fakecuda.Run(cmd)
		require.NoError(t, err)
		require.Equal(t, 2, cmd.ProcessState.ExitCode(), "%v: %s", f, out)
		require.Contains(t, out, map[string]string{"hang": "SIGQUIT", "crash": "SIGSEGV", "abort": "SIGABRT"}[f.kind], f)
		require.Contains(t, out, "_Cfunc_", f)
	}
}

// strike plants an error in the k-th call of a walk.
func strike(t *testing.T, k int, kind string) {
	plan := fmt.Sprintf("*@%d:%s", k, kind)
	was := gpu.Seen()
	gpu.Plant(plan)
	w := new(walker)
	err := w.walk()
	gpu.Plant("")
	gpu.Mend()
	is := gpu.Seen()
	if is.Hits == was.Hits { // the first walk of a process makes a few calls more
		require.NoError(t, err, plan)
		return
	}
	plan += ": " + is.Met
	closing, lost := w.met == was.Hits, kind == "lost719"
	if err == nil {
		require.True(t, slices.Contains(forgiven, is.Met) || lost && closing, plan)
		return
	}
	if !slices.Contains(forgiven, is.Met) {
		require.ErrorContains(t, err, fakecuda.Plain(is.Met)+": ", plan)
	}
	library := strings.HasPrefix(is.Met, "cublasLt")
	want := map[string]error{"memory": device.ErrMemory, "lost719": device.ErrLost, "46": device.ErrNoDevice}[kind]
	switch {
	case want != nil && (!library || kind == "memory"):
		require.ErrorIs(t, err, want, plan)
	case !library:
		require.ErrorContains(t, err, "as the fake driver says", plan)
	}
	if !lost && !closing && !fakecuda.GivesBack(is.Met) {
		require.Equal(t, was.Left, is.Left, plan)
	}
}

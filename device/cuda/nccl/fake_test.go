//go:build cgo && linux && (amd64 || arm64)

package nccl

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/internal/search"
	"github.com/weft-project/weft/internal/fakenccl"
)

var maker fakenccl.Maker

// fake is a library of a version, and what plays it.
func fake(t *testing.T, version int) (*Library, *fakenccl.Fake) {
	t.Helper()
	f, err := maker.Build(t.TempDir(), version)
	require.NoError(t, err)
	l, err := OpenAt(f.Path)
	require.NoError(t, err)
	t.Cleanup(func() {
		f.Mend()
		require.Zero(t, f.Misuses(), "calls with a communicator that was freed")
	})
	return l, f
}

// all does something on all ranks at once.
func all(size int, do func(rank int) error) []error {
	errs := make([]error, size)
	var wg sync.WaitGroup
	for r := range size {
		wg.Go(func() { errs[r] = do(r) })
	}
	wg.Wait()
	return errs
}

func every(t *testing.T, size int, do func(rank int) error) {
	t.Helper()
	for r, err := range all(size, do) {
		require.NoError(t, err, "rank %d", r)
	}
}

// world is a communicator of ranks on a GPU each.
func world(t *testing.T, l *Library, f *fakenccl.Fake, size int, cfg Config) []*Comm {
	t.Helper()
	id, err := l.NewID()
	require.NoError(t, err)
	ms := make([]*Comm, size)
	every(t, size, func(r int) (err error) {
		ms[r], err = l.Init(t.Context(), fakenccl.GPU{Of: f, Number: r}, size, id, r, cfg)
		return err
	})
	return ms
}

func address[T any](s []T) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(s))) }

func TestALibraryThatIsMissingOrNoNCCLOrTooOldIsAnErrorThatSaysWhatToDo(t *testing.T) {
	_, err := OpenAt("/nonexistent/libnccl.so.2")
	require.ErrorIs(t, err, cuda.ErrNoLibrary)
	require.ErrorContains(t, err, "/nonexistent/libnccl.so.2: cannot open")
	require.ErrorContains(t, err, "nvidia-nccl-cu12")
	require.ErrorContains(t, err, "WEFT_NCCL")

	_, err = OpenAt("libm.so.6")
	require.ErrorIs(t, err, cuda.ErrNoLibrary)
	require.ErrorContains(t, err, "libm.so.6 is not NCCL: it has no ncclGetVersion")

	f, err := maker.Build(t.TempDir(), 21701)
	require.NoError(t, err)
	_, err = OpenAt(f.Path)
	require.ErrorIs(t, err, ErrOld)
	require.ErrorContains(t, err, f.Path+" is version 2.17.1 and has no ncclCommSplit")
	require.ErrorContains(t, err, "install 2.18 or later")
	_, err = openFirst([]string{"/nonexistent/libnccl.so.2", f.Path})
	require.ErrorIs(t, err, ErrOld, "more is to be learned of it than of what is not there")

	g, err := maker.Build(t.TempDir(), 21803)
	require.NoError(t, err)
	l, err := openFirst([]string{f.Path, g.Path})
	require.NoError(t, err)
	require.Equal(t, g.Path, l.Path())
	require.Equal(t, "2.18.3", Version(l.Version()))
	require.Equal(t, "2.8.4", Version(2804))
}

func TestWhatAVersionLacksIsMissingByNameAndVersionAndTheRestWorks(t *testing.T) {
	l, f := fake(t, 21803)
	require.False(t, l.Has("ncclCommShrink"))
	require.True(t, l.Has("ncclCommSplit"))
	require.False(t, l.Has("ncclNothing"))
	m := world(t, l, f, 2, Config{})[0]
	_, err := m.Shrink(t.Context(), []int{1}, false, Config{})
	require.ErrorIs(t, err, ErrMissing)
	require.ErrorContains(t, err, "is version 2.18.3: 2.27 or later has it")
	require.ErrorIs(t, m.Revoke(), ErrMissing)
	_, err = m.Register(8, 8)
	require.ErrorIs(t, err, ErrMissing)
	_, err = l.Alloc(fakenccl.GPU{Of: f}, 8)
	require.ErrorIs(t, err, ErrMissing)
	for field, cfg := range map[string]Config{"TrafficClass": {TrafficClass: 3}, "ShrinkShare": {ShrinkShare: true}} {
		_, err = m.Split(t.Context(), 0, 0, cfg)
		require.ErrorIs(t, err, ErrMissing, field)
		require.ErrorContains(t, err, field)
	}
	require.NoError(t, m.Abort())
}

func TestAConfigurationIsTheOldestThatHasWhatIsWanted(t *testing.T) {
	for _, c := range []struct {
		version       int
		cfg           Config
		size, written int
	}{
		{21803, Config{}, 48, 21800}, {23007, Config{}, 48, 21800}, {21803, Config{Name: "decoration"}, 48, 21800},
		{23007, Config{Name: "shown"}, 72, 22700}, {22605, Config{TrafficClass: 1}, 48, 22600}, {23007, Config{ShrinkShare: true}, 72, 22700},
	} {
		var pin runtime.Pinner
		l, err := c.cfg.packed(c.version, &pin)
		require.NoError(t, err)
		require.Equal(t, []int{c.size, c.written}, []int{int(l.size), int(l.version)}, "%+v", c)
		pin.Unpin()
	}
	var pin runtime.Pinner
	_, err := Config{MaxCTAs: -1}.packed(23007, &pin)
	require.ErrorIs(t, err, ErrArgument)
	require.ErrorContains(t, err, "MaxCTAs is -1")

	l, f := fake(t, 23007)
	world(t, l, f, 1, Config{MinCTAs: 3, MaxCTAs: 5, SplitShare: true})
	got := f.Config()
	require.Equal(t, []int{48, 0xcafebeef, 21800, 0, undefined, 3, 5}, got[:7], "as C reads it: not blocking")
	require.Equal(t, 1, got[9])
}

// defined is what a call gives, of all ranks' inputs.
func defined(c Call, rank int, in [][]float64) []float64 {
	fold := func(at int) float64 {
		x := in[0][at]
		for _, more := range in[1:] {
			switch y := more[at]; c.Op {
			case Sum, Avg:
				x += y
			case Prod:
				x *= y
			case Max:
				x = max(x, y)
			case Min:
				x = min(x, y)
			}
		}
		if c.Op == Avg {
			x /= float64(len(in))
		}
		return x
	}
	var out []float64
	switch c.Kind {
	case AllReduce, Reduce:
		for i := range c.Count {
			out = append(out, fold(i))
		}
	case Broadcast:
		out = in[c.Root][:c.Count]
	case AllGather:
		for _, x := range in {
			out = append(out, x[:c.Count]...)
		}
	case ReduceScatter:
		for i := range c.Count {
			out = append(out, fold(rank*c.Count+i))
		}
	}
	if c.Kind == Reduce && rank != c.Root {
		return nil
	}
	return out
}

func TestEachOperationReachesTheLibraryWithItsArguments(t *testing.T) {
	l, f := fake(t, 23007)
	for size := 1; size <= 4; size++ {
		ms := world(t, l, f, size, Config{Name: "all"})
		for k := AllReduce; k <= ReduceScatter; k++ {
			for op := Sum; op <= Avg; op++ {
				seed := rand.Uint64()
				r := rand.New(rand.NewPCG(seed, 0))
				c := Call{Kind: k, Op: op, Type: Float64, Count: r.IntN(5), Root: r.IntN(size)}
				in, out := make([][]float64, size), make([][]float64, size)
				for q := range in {
					in[q], out[q] = make([]float64, 5*size), make([]float64, 5*size)
					for i := range in[q] {
						in[q][i] = float64(r.IntN(9) - 4)
					}
				}
				every(t, size, func(q int) error {
					mine := c
					mine.Send, mine.Recv = address(in[q]), address(out[q])
					return ms[q].Run(uintptr(7+q), mine)
				})
				for q := range out {
					want := defined(c, q, in)
					require.Equal(t, append(want[:len(want):len(want)], make([]float64, 5*size-len(want))...), out[q], "seed %d, %v, rank %d", seed, c, q)
				}
				records := f.Records()
				for _, record := range records[len(records)-size:] {
					require.Equal(t, uintptr(7+record.Rank), record.Stream)
					require.Equal(t, record.Rank, record.GPU)
				}
			}
		}
		require.Zero(t, f.Pending())
		every(t, size, func(r int) error { return ms[r].Close(t.Context()) })
		require.ErrorIs(t, ms[0].Run(0, Call{Type: Float32}), ErrClosed)
		require.NoError(t, ms[0].Close(t.Context()), "closing twice does nothing")
	}
}

func TestSendsAndReceivesOfAGroupDoNotWaitForOneAnother(t *testing.T) {
	l, f := fake(t, 21803)
	const size = 3
	ms := world(t, l, f, size, Config{})
	in, out := make([][]int32, size), make([][]int32, size)
	every(t, size, func(r int) error {
		var calls []Call
		in[r], out[r] = make([]int32, size), make([]int32, size)
		for q := range size {
			in[r][q] = int32(10*r + q)
			calls = append(calls, Call{Kind: Send, Send: address(in[r][q:]), Count: 1, Type: Int32, Peer: q},
				Call{Kind: Recv, Recv: address(out[r][q:]), Count: 1, Type: Int32, Peer: q})
		}
		return ms[r].Run(1, calls...)
	})
	require.Zero(t, f.Pending())
	for r := range size {
		require.Equal(t, []int32{int32(r), int32(10 + r), int32(20 + r)}, out[r])
	}
}

func TestAFactorIsAppliedToEachRanksElements(t *testing.T) {
	l, f := fake(t, 23007)
	ms := world(t, l, f, 2, Config{})
	in, out := [2][]float32{{4}, {8}}, [2][]float32{{0}, {0}}
	every(t, 2, func(r int) error {
		op, err := ms[r].Scaled(Float32, 0.5)
		require.NoError(t, err)
		require.NoError(t, ms[r].Run(0, Call{Kind: AllReduce, Send: address(in[r]), Recv: address(out[r]), Count: 1, Type: Float32, Op: op}))
		return ms[r].Unscale(op)
	})
	require.Equal(t, [2][]float32{{6}, {6}}, out)
	runtime.KeepAlive(in)
	_, err := ms[0].Scaled(Int32, 2)
	require.ErrorIs(t, err, ErrArgument)
}

func TestMemoryIsAllocatedAndRegisteredWhereTheVersionHasIt(t *testing.T) {
	l, f := fake(t, 21903)
	m := world(t, l, f, 1, Config{})[0]
	gpu := fakenccl.GPU{Of: f}
	at, err := l.Alloc(gpu, 64)
	require.NoError(t, err)
	h, err := m.Register(at, 64)
	require.NoError(t, err)
	require.Equal(t, 1, f.Registered())
	require.NoError(t, m.Deregister(h))
	require.Zero(t, f.Registered())
	require.NoError(t, l.Free(gpu, at))
}

func TestASplitIsByColorInTheOrderOfKeys(t *testing.T) {
	l, f := fake(t, 21803)
	const size = 5
	ms := world(t, l, f, size, Config{})
	got := make([]string, size)
	every(t, size, func(r int) error {
		color := r % 2
		if r == 4 {
			color = NoColor
		}
		child, err := ms[r].Split(t.Context(), color, size-r, Config{})
		if child != nil {
			got[r] = fmt.Sprint(color, child.Rank(), child.Size())
		}
		return err
	})
	require.Equal(t, []string{"0 1 2", "1 1 2", "0 0 2", "1 0 2", ""}, got)
	_, err := ms[0].Split(t.Context(), -2, 0, Config{})
	require.ErrorIs(t, err, ErrArgument)
}

func TestThoseWhoStayShrink(t *testing.T) {
	l, f := fake(t, 22703)
	const size = 4
	ms := world(t, l, f, size, Config{})
	got := make([]string, size)
	every(t, size, func(r int) error {
		if r == 1 {
			return nil
		}
		child, err := ms[r].Shrink(t.Context(), []int{1}, true, Config{ShrinkShare: true})
		if err == nil {
			got[r] = fmt.Sprint(child.Rank(), child.Size())
		}
		return err
	})
	require.Equal(t, []string{"0 3", "", "1 3", "2 3"}, got)
	for _, bad := range [][]int{nil, {4}, {-1}, {0}, {1, 1}} {
		_, err := ms[0].Shrink(t.Context(), bad, false, Config{})
		require.ErrorIs(t, err, ErrArgument, bad)
	}
}

func TestAMistakeIsRefusedBeforeNCCLIsAsked(t *testing.T) {
	l, f := fake(t, 23007)
	m := world(t, l, f, 1, Config{})[0]
	for says, c := range map[string]Call{
		"no such kind": {Kind: 9}, "DataType(99)": {Type: 99}, "-1 elements": {Count: -1}, "RedOp(-1)": {Op: -1}, "root 1": {Kind: Reduce, Root: 1},
		"peer -1": {Kind: Send, Peer: -1},
	} {
		err := m.Run(0, c)
		require.ErrorIs(t, err, ErrArgument)
		require.ErrorContains(t, err, says)
	}
	require.Empty(t, f.Records())
}

func TestWhatNCCLSaysIsATypedErrorWithItsWordsAndWhatToDo(t *testing.T) {
	l, f := fake(t, 23007)
	m := world(t, l, f, 1, Config{})[0]
	for code, want := range map[int]error{1: ErrCUDA, 2: ErrSystem, 3: ErrInternal, 4: ErrArgument, 5: ErrUsage, 6: ErrRemote, 8: ErrTimeout, 99: ErrInternal} {
		f.Plant("ncclAllReduce", -1, code)
		err := m.Run(0, Call{Type: Float32})
		require.ErrorIs(t, err, want)
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "ncclAllReduce", e.Op)
		require.Equal(t, code, e.Code)
		require.Contains(t, err.Error(), "fake ")
		f.Mend()
		f.Plant("ncclCommGetAsyncError", 0, code)
		_, err = m.Async()
		require.ErrorIs(t, err, want, "as it does later")
		f.Mend()
	}
	f.Plant("ncclGroupEnd", -1, 2)
	require.ErrorIs(t, m.Run(0, Call{Type: Float32}, Call{Type: Float32}), ErrSystem)
	f.Mend()
}

func TestTwoRanksOnOneGPUAndARankThatDoesNotComeAreErrors(t *testing.T) {
	l, f := fake(t, 23007)
	id, err := l.NewID()
	require.NoError(t, err)
	c, cancel := context.WithCancelCause(t.Context())
	late := fmt.Errorf("rank 1 has not come")
	first := make(chan error)
	go func() {
		_, err := l.Init(c, fakenccl.GPU{Of: f}, 2, id, 0, Config{})
		first <- err
	}()
	for f.Calls("ncclCommGetAsyncError") == 0 { // until it waits
		runtime.Gosched()
	}
	_, err = l.Init(t.Context(), fakenccl.GPU{Of: f}, 2, id, 1, Config{})
	require.ErrorIs(t, err, ErrUsage)
	require.ErrorContains(t, err, "ranks 0 and 1 are on GPU 0")
	cancel(late)
	require.ErrorIs(t, <-first, late)
	require.Equal(t, 1, f.Calls("ncclCommAbort"))
}

func TestACallThatHangsReturnsWhenItsCommunicatorIsAbortedAndHoldsUpNobodyElse(t *testing.T) {
	for _, calls := range [][]Call{{{Type: Float32}}, {{Type: Float32}, {Type: Float32}}} {
		l, f := fake(t, 23007)
		ms := world(t, l, f, 2, Config{})
		f.Hang("ncclAllReduce", 1)
		was := runtime.GOMAXPROCS(1) // one processor of Go's, which a thread in C does not hold
		hung := make(chan error)
		go func() { hung <- ms[1].Run(0, calls...) }()
		for f.Calls("ncclAllReduce") == 0 {
			runtime.Gosched()
		}
		require.NoError(t, ms[0].Run(0, calls...), "the other rank is free")
		require.NoError(t, ms[1].Abort())
		err := <-hung
		require.Error(t, err)
		runtime.GOMAXPROCS(was)
		require.ErrorIs(t, ms[1].Run(0, calls...), ErrAborted)
		_, err = ms[1].Async()
		require.ErrorIs(t, err, ErrAborted)
		require.NoError(t, ms[1].Abort(), "twice")
		require.NoError(t, ms[1].Close(t.Context()))
		require.Equal(t, 1, f.Calls("ncclCommAbort"))
	}
}

func TestWhoWaitsAlongWithOthersToCloseGivesUpWhenItsContextEnds(t *testing.T) {
	l, f := fake(t, 23007)
	ms := world(t, l, f, 2, Config{})
	c, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, ms[0].Close(c), context.Canceled)
	require.Equal(t, 1, f.Calls("ncclCommAbort"))
	require.NoError(t, ms[1].Close(t.Context()), "the other one is gone")
}

func TestNCCLIsLookedForWhereItsUsersHaveIt(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "lib", "libnccl.so.2")
	require.NoError(t, os.Mkdir(filepath.Dir(at), 0o700))
	require.NoError(t, os.WriteFile(at, nil, 0o600))
	t.Setenv("NCCL_HOME", dir)
	require.Equal(t, []string{"libnccl.so.2", at}, paths(search.This())[:2])
	venv := filepath.Join(dir, "lib", "python3.12", "site-packages", "nvidia", "nccl", "lib", "libnccl.so.2")
	require.NoError(t, os.MkdirAll(filepath.Dir(venv), 0o700))
	require.NoError(t, os.WriteFile(venv, nil, 0o600))
	t.Setenv("VIRTUAL_ENV", dir)
	require.Contains(t, paths(search.This()), venv, "pip's")
	t.Setenv("WEFT_NCCL", "/x.so")
	require.Equal(t, []string{"/x.so"}, paths(search.This()), "and nothing else")
}

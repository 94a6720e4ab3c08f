package tensors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/simnet"
)

// world is some workers of this process, and groups of them.
type world struct {
	t  *testing.T
	ws []*rpc.Worker
}

func newWorld(t *testing.T, n int, serves ...rpc.Function) *world {
	t.Helper()
	return &world{t, rpctest.World(t, rpctest.Net(), n, serves...)}
}

// group opens a group of all workers, or of these.
func (w *world) group(name string, ranks ...int) []*collective.Group {
	w.t.Helper()
	if len(ranks) == 0 {
		for r := range w.ws {
			ranks = append(ranks, r)
		}
	}
	var names []string
	for _, r := range ranks {
		names = append(names, w.ws[r].Name())
	}
	gs := make([]*collective.Group, len(w.ws))
	w.each(func(r int) (err error) {
		for _, k := range ranks {
			if k == r {
				gs[r], err = collective.Open(w.t.Context(), w.ws[r], name, names...)
			}
		}
		return err
	})
	w.t.Cleanup(func() {
		for _, g := range gs {
			if g != nil {
				require.NoError(w.t, g.Close())
			}
		}
	})
	return gs
}

// attempt does something on all workers at once.
func (w *world) attempt(fn func(r int) error) []error {
	return rpctest.Attempt(len(w.ws), fn)
}

func (w *world) each(fn func(r int) error) {
	w.t.Helper()
	for r, err := range w.attempt(fn) {
		require.NoError(w.t, err, "rank %d", r)
	}
}

// passes does something on all workers at once, each in a pass.
func (w *world) passes(fn func(c context.Context, r int) error) []error {
	return w.attempt(func(r int) error {
		return w.ws[r].Pass(w.t.Context(), func(c context.Context) error { return fn(c, r) })
	})
}

func (w *world) eachPass(fn func(c context.Context, r int) error) {
	w.t.Helper()
	for r, err := range w.passes(fn) {
		require.NoError(w.t, err, "rank %d", r)
	}
}

// parameter is a vector that requires a gradient.
func parameter(v ...float64) *autodiff.Tensor { return autodiff.New(v).RequireGrad() }

// gradientOf is the pass's gradient of a leaf, nil where there is none.
func gradientOf(c context.Context, leaf *autodiff.Tensor) ([]float64, error) {
	all, err := ctx.Gradients(c)
	if err != nil || all[leaf] == nil {
		return nil, err
	}
	return autodiff.Values[float64](all[leaf])
}

func TestTheGradientOfASumIsTheSumOfGradientsOfAllLosses(t *testing.T) {
	w := newWorld(t, 3)
	gs := w.group("g")
	w.eachPass(func(c context.Context, r int) error {
		x := parameter(1, 2, float64(r))
		y := AllReduce(c, gs[r], x, collective.Sum)
		if err := ctx.Backward(c, autodiff.Sum(autodiff.Scale(y, float64(r+1)))); err != nil {
			return err
		}
		got, err := gradientOf(c, x)
		if err == nil && fmt.Sprint(got) != "[6 6 6]" {
			err = fmt.Errorf("the gradient is %v", got)
		}
		return err
	})
}

// counts counts the messages that are sent, and the bytes of their tensors and headers.
type counts struct{ messages, bytes atomic.Int64 }

func (n *counts) net() *simnet.Net {
	return simnet.New(simnet.Config{Logger: slog.New(slog.DiscardHandler), Drop: func(_, _ string, m *transport.Message) bool {
		n.messages.Add(1)
		n.bytes.Add(int64(len(m.Header)))
		for _, t := range m.Tensors {
			n.bytes.Add(int64(t.Buf.Len()))
		}
		return false
	}})
}

func TestAnUnusedResultNeitherHangsNorMovesAByte(t *testing.T) {
	const size = 3
	var sent counts
	w := &world{t, rpctest.World(t, sent.net(), size)}
	a, b := w.group("a"), w.group("b")
	var want [2]int64
	for _, unused := range []int{0, 1, 2, 20} {
		before := make(chan struct{})
		var ready sync.WaitGroup
		ready.Add(size)
		var messages, bytes int64
		go func() {
			ready.Wait()
			messages, bytes = sent.messages.Load(), sent.bytes.Load()
			close(before)
		}()
		w.eachPass(func(c context.Context, r int) error {
			x := parameter(make([]float64, 5000)...)
			y := AllReduce(c, a[r], x, collective.Sum)
			for range unused { // each depends on the one before
				y = AllReduce(c, a[r], y, collective.Max)
			}
			own, z := parameter(1, 2), AllGather(c, b[r], y, 0)
			if err := z.Err(); err != nil {
				return err
			}
			ready.Done()
			<-before
			return ctx.Backward(c, autodiff.Sum(autodiff.Mul(own, own)))
		})
		messages, bytes = sent.messages.Load()-messages, sent.bytes.Load()-bytes
		require.LessOrEqual(t, messages, int64(2*2*size*(size-1)), "what is reached, and later what is decided of group b")
		require.Less(t, bytes, int64(20000), "%d unused", unused)
		if unused == 0 {
			want = [2]int64{messages, bytes}
		}
		require.Equal(t, want[0], messages, "%d unused", unused)
	}
}

func TestMembersMayReachOperationsInAnyOrder(t *testing.T) {
	const size, ops = 3, 12
	w := newWorld(t, size)
	gs := w.group("g")
	for i := range soak.Cases(20) {
		w.eachPass(func(c context.Context, r int) error {
			x := parameter(1, 1)
			var ys []*autodiff.Tensor
			for range ops {
				ys = append(ys, AllReduce(c, gs[r], x, collective.Sum))
			}
			l := autodiff.Scale(x, 0)
			for _, k := range rand.New(rand.NewPCG(uint64(r), uint64(i))).Perm(ops) { // the last one is reached first
				l = autodiff.Scale(autodiff.Add(l, ys[k]), 0.5)
			}
			if err := ctx.Backward(c, autodiff.Sum(l)); err != nil {
				return err
			}
			got, err := gradientOf(c, x)
			if want := size * (1 - math.Pow(0.5, ops)); err == nil && math.Abs(got[0]-want) > 1e-12 {
				err = fmt.Errorf("the gradient is %v; expected %v", got, want)
			}
			return err
		})
	}
}

// works shows that a group lives: the next sum and its gradient are right.
func (w *world) works(gs []*collective.Group) {
	w.t.Helper()
	w.eachPass(func(c context.Context, r int) error {
		x := parameter(1)
		if err := ctx.Backward(c, autodiff.Sum(AllReduce(c, gs[r], x, collective.Sum))); err != nil {
			return err
		}
		got, err := gradientOf(c, x)
		if err == nil && got[0] != float64(len(gs)) {
			err = fmt.Errorf("the gradient is %v", got)
		}
		return err
	})
}

func TestAMemberLostDuringABackwardFailsItOnAllOthersWithItsName(t *testing.T) {
	for _, when := range []string{"before it begins", "while it runs"} {
		t.Run(when, func(t *testing.T) {
			w := newWorld(t, 3)
			gs := w.group("g")
			var ready sync.WaitGroup
			ready.Add(3)
			errs := w.passes(func(c context.Context, r int) error {
				x := parameter(1)
				y := AllReduce(c, gs[r], x, collective.Sum)
				if err := y.Err(); err != nil {
					return err
				}
				ready.Done()
				ready.Wait()
				if r == 2 {
					if when == "before it begins" {
						return w.ws[2].Close()
					}
					_, err := y.OnGrad(func(*autodiff.Tensor) *autodiff.Tensor {
						_ = w.ws[2].Close()
						return nil
					})
					if err != nil {
						return err
					}
				}
				return ctx.Backward(c, autodiff.Sum(y))
			})
			for r := range 2 {
				require.ErrorIs(t, errs[r], ctx.ErrPeerLost, "rank %d", r)
				require.ErrorContains(t, errs[r], w.ws[2].Name())
				var lost *collective.LostError
				require.ErrorAs(t, errs[r], &lost)
				require.Equal(t, 2, lost.Rank)
				if f := (*ctx.Failure)(nil); errors.As(errs[r], &f) {
					require.Equal(t, w.ws[2].Name(), f.Worker)
				}
			}
		})
	}
}

func TestABackwardThatFailsOnAMemberFailsOnAllThatNeedIt(t *testing.T) {
	cause := errors.New("no more")
	fails := map[string]func(c context.Context, y, z *autodiff.Tensor) error{
		"in a hook": func(c context.Context, y, z *autodiff.Tensor) error {
			_, err := z.OnGrad(func(*autodiff.Tensor) *autodiff.Tensor { return autodiff.Failed(cause) })
			return errors.Join(err, ctx.Backward(c, autodiff.Sum(autodiff.Add(y, z))))
		},
		"before it begins": func(c context.Context, y, _ *autodiff.Tensor) error { return ctx.Backward(c, y) },
		"with an error in the loss": func(c context.Context, y, _ *autodiff.Tensor) error {
			return ctx.Backward(c, autodiff.Sum(autodiff.Add(y, autodiff.Failed(cause))))
		},
		"with an ended context": func(c context.Context, y, _ *autodiff.Tensor) error {
			c, cancel := context.WithCancelCause(c)
			cancel(cause)
			return ctx.Backward(c, autodiff.Sum(y))
		},
	}
	w := newWorld(t, 3)
	gs := w.group("g")
	for name, fail := range fails {
		t.Run(name, func(t *testing.T) {
			errs := w.passes(func(c context.Context, r int) error {
				x := parameter(1, 2)
				y := AllReduce(c, gs[r], x, collective.Sum)
				z := autodiff.Scale(AllReduce(c, gs[r], y, collective.Sum), 2)
				if r == 1 {
					return fail(c, y, z)
				}
				return ctx.Backward(c, autodiff.Sum(autodiff.Add(y, z)))
			})
			require.Error(t, errs[1])
			for _, r := range []int{0, 2} {
				require.ErrorIs(t, errs[r], collective.ErrAborted, "rank %d", r)
				require.ErrorContains(t, errs[r], w.ws[1].Name())
			}
			w.works(gs)
		})
	}
}

func TestWhatOneMemberCallsOtherwiseFailsOnAllWithBothLines(t *testing.T) {
	w := newWorld(t, 3)
	gs := w.group("g")
	x := func(shape ...int) *autodiff.Tensor { return autodiff.Zeros(device.Float32, shape...) }
	bad := map[string]func(c context.Context, r int) *autodiff.Tensor{
		"shape": func(c context.Context, r int) *autodiff.Tensor {
			return AllReduce(c, gs[r], x([][]int{{2, 3}, {3, 2}, {2, 3}}[r]...), collective.Sum)
		},
		"other axes": func(c context.Context, r int) *autodiff.Tensor { return AllGather(c, gs[r], x(2, 2+r/2), 0) },
		"axis":       func(c context.Context, r int) *autodiff.Tensor { return AllGather(c, gs[r], x(2, 2), r/2) },
		"operation": func(c context.Context, r int) *autodiff.Tensor {
			return AllReduce(c, gs[r], x(2), []collective.Op{collective.Sum, collective.Max, collective.Sum}[r])
		},
		"root": func(c context.Context, r int) *autodiff.Tensor { return Scatter(c, gs[r], x(6), 0, r/2) },
		"a pass": func(c context.Context, r int) *autodiff.Tensor {
			if r == 0 {
				c = ctx.NoGrad(c)
			}
			return AllReduce(c, gs[r], x(2), collective.Sum)
		},
		"kind": func(c context.Context, r int) *autodiff.Tensor {
			if r == 1 {
				return Broadcast(c, gs[r], x(2), 0)
			}
			return AllToAll(c, gs[r], x(3))
		},
		"operations of the pass": func(c context.Context, r int) *autodiff.Tensor {
			p := parameter(1)
			Enter(c, gs[r], p)
			if r == 2 {
				Enter(c, gs[r], p)
				return autodiff.Failed(ctx.Backward(c, autodiff.Sum(p)))
			}
			defer gs[r].Mark(c) // so that the next one goes by the same name
			return autodiff.Failed(ctx.Backward(c, autodiff.Sum(p)))
		},
	}
	for name, fn := range bad {
		t.Run(name, func(t *testing.T) {
			for r, err := range w.passes(func(c context.Context, r int) error {
				y := fn(c, r)
				if y == nil {
					return nil
				}
				return y.Err()
			}) {
				var m *collective.MismatchError
				require.ErrorAs(t, err, &m, "rank %d", r)
				require.Contains(t, m.Calls[0].Line, "tensors_test.go:")
				require.Contains(t, m.Calls[1].Line, "tensors_test.go:")
			}
			w.works(gs)
		})
	}
}

func TestAnArgumentThatCannotBeFailsOnAll(t *testing.T) {
	w := newWorld(t, 3)
	gs := w.group("g")
	x := autodiff.Zeros(device.Float32, 6)
	bad := map[string]func(c context.Context, g *collective.Group) *autodiff.Tensor{
		"an error": func(c context.Context, g *collective.Group) *autodiff.Tensor {
			return AllReduce(c, g, autodiff.Failed(errors.New("none")), collective.Sum)
		},
		"nil": func(c context.Context, g *collective.Group) *autodiff.Tensor {
			return AllReduce(c, g, nil, collective.Max)
		},
		"an axis": func(c context.Context, g *collective.Group) *autodiff.Tensor { return AllGather(c, g, x, 1) },
		"a root":  func(c context.Context, g *collective.Group) *autodiff.Tensor { return Gather(c, g, x, 0, 3) },
		"bits of floats": func(c context.Context, g *collective.Group) *autodiff.Tensor {
			return AllReduce(c, g, x, collective.Xor)
		},
		"too few rows": func(c context.Context, g *collective.Group) *autodiff.Tensor { return AllToAll(c, g, x, 1, 2, 2) },
		"another's pass": func(c context.Context, g *collective.Group) *autodiff.Tensor {
			return AllReduce(c, g, autodiff.Scale(ownedBy("other"), 1), collective.Sum)
		},
		"a negative rows": func(c context.Context, g *collective.Group) *autodiff.Tensor { return AllToAll(c, g, x, 7, -1, 0) },
	}
	for name, fn := range bad {
		t.Run(name, func(t *testing.T) {
			for r, err := range w.passes(func(c context.Context, r int) error {
				if r != 1 {
					return AllReduce(c, gs[r], x, collective.Sum).Err()
				}
				return fn(c, gs[r]).Err()
			}) {
				if require.Error(t, err, "rank %d", r); r != 1 {
					require.ErrorIs(t, err, collective.ErrAborted)
					require.ErrorContains(t, err, w.ws[1].Name())
				}
				require.ErrorContains(t, err, "tensors_test.go:")
			}
			w.works(gs)
		})
	}
}

// ownedBy is a tensor of an arena.
func ownedBy(name string) *autodiff.Tensor {
	t := autodiff.New([]float32{1})
	if err := autodiff.NewArena(name).Adopt(t); err != nil {
		return autodiff.Failed(err)
	}
	return t
}

func TestAFailureInTheFirstOfTwoStepsLeavesMembersAgreedOnWhatIsNext(t *testing.T) {
	w := newWorld(t, 3)
	gs := w.group("g")
	for _, root := range []int{-1, 0} {
		for r, err := range w.passes(func(c context.Context, r int) error {
			x := parameter(1, 2)
			if r == 1 {
				x = autodiff.Failed(errors.New("none"))
			}
			if root < 0 {
				return AllReduce(c, gs[r], x, collective.Max).Err()
			}
			return Reduce(c, gs[r], x, collective.Prod, root).Err()
		}) {
			require.Error(t, err, "rank %d", r)
		}
		w.works(gs)
	}
}

func TestABackwardOfAGroupsOperationDoesNotRunAlone(t *testing.T) {
	w := newWorld(t, 2)
	gs := w.group("g")
	w.each(func(r int) error {
		x := parameter(1)
		_, err := autodiff.Backward(autodiff.Sum(AllReduce(t.Context(), gs[r], x, collective.Sum)))
		if !errors.Is(err, ctx.ErrShared) {
			return fmt.Errorf("without a pass: %w", err)
		}
		if y := AllReduce(t.Context(), gs[r], x.Detach(), collective.Sum); y.RequiresGrad() || y.Err() != nil {
			return fmt.Errorf("what has no gradient: %v", y)
		}
		grads, err := autodiff.Backward(autodiff.Sum(Leave(t.Context(), gs[r], x)))
		if err != nil || grads.Of(x) == nil {
			return fmt.Errorf("leaving needs nobody: %w", err)
		}
		return nil
	})
	w.eachPass(func(c context.Context, r int) error {
		l := AllReduce(c, gs[r], parameter(1), collective.Sum)
		if _, err := autodiff.Backward(l); !errors.Is(err, ctx.ErrShared) {
			return fmt.Errorf("in a pass: %w", err)
		}
		if err := ctx.BackwardWith(c, ctx.Options{RetainGraph: true}, l); err != nil {
			return err
		}
		if err := ctx.Backward(c, l); err != nil {
			return err
		}
		if err := ctx.Backward(c, l); !errors.Is(err, ctx.ErrShared) {
			return fmt.Errorf("when it is used up: %w", err)
		}
		c = ctx.NoGrad(c)
		if y := AllReduce(c, gs[r], parameter(1), collective.Sum); y.RequiresGrad() || y.Err() != nil {
			return fmt.Errorf("under NoGrad: %v", y)
		}
		return nil
	})
}

func TestTensorsStayOnTheirDevice(t *testing.T) {
	w := newWorld(t, 2)
	gs := w.group("g")
	w.eachPass(func(c context.Context, r int) error {
		dev := device.NewSim(device.SimConfig{Index: r})
		x := parameter(1, 2)
		y := AllGather(c, gs[r], AllReduce(c, gs[r], autodiff.To(x, dev), collective.Prod), 0)
		if y.Device() != dev.ID() {
			return fmt.Errorf("it is %v", y)
		}
		if err := ctx.Backward(c, autodiff.Sum(y)); err != nil {
			return err
		}
		got, err := gradientOf(c, x)
		if err == nil && fmt.Sprint(got) != "[4 8]" {
			err = fmt.Errorf("the gradient is %v", got)
		}
		return err
	})
}

func TestTheGradientOfAProductHasNoTroubleWithZeros(t *testing.T) {
	w := newWorld(t, 3)
	gs := w.group("g")
	in := [][]float64{{0, 0, 2, math.Inf(1)}, {3, 0, 0, 2}, {5, 5, 0, 3}}
	want := [][]float64{{15, 0, 0, 6}, {0, 0, 0, math.Inf(1)}, {0, 0, 0, math.Inf(1)}}
	w.eachPass(func(c context.Context, r int) error {
		x := parameter(in[r]...)
		l := autodiff.Sum(AllReduce(c, gs[r], x, collective.Prod))
		if r > 0 {
			l = autodiff.Sum(parameter(1)) // rank 0 alone has a loss
		}
		if err := ctx.Backward(c, l); err != nil {
			return err
		}
		got, err := gradientOf(c, x)
		if err == nil && fmt.Sprint(got) != fmt.Sprint(want[r]) {
			err = fmt.Errorf("the gradient is %v; expected %v", got, want[r])
		}
		return err
	})
}

func TestTheGradientOfAMaximumIsSharedByThoseThatHaveIt(t *testing.T) {
	w := newWorld(t, 3)
	gs := w.group("g")
	nan := math.NaN()
	in := [][]float64{{1, 2, nan, 1}, {1, 3, 1, nan}, {1, 3, 1, nan}}
	want := [][]float64{{1, 0, 3, 0}, {1, 1.5, 0, 1.5}, {1, 1.5, 0, 1.5}}
	for _, sign := range []float64{1, -1} {
		op := collective.Max
		if sign < 0 {
			op = collective.Min
		}
		w.eachPass(func(c context.Context, r int) error {
			x := parameter(in[r]...)
			y := AllReduce(c, gs[r], autodiff.Scale(x, sign), op)
			if err := ctx.Backward(c, autodiff.Sum(autodiff.Scale(y, sign))); err != nil {
				return err
			}
			got, err := gradientOf(c, x)
			if err == nil && fmt.Sprint(got) != fmt.Sprint(want[r]) {
				err = fmt.Errorf("the gradient is %v; expected %v", got, want[r])
			}
			return err
		})
	}
}

func TestEmptyTensorsAndWholeNumbersGoTheSameWay(t *testing.T) {
	w := newWorld(t, 3)
	gs := w.group("g")
	w.eachPass(func(c context.Context, r int) error {
		empty := func(shape ...int) *autodiff.Tensor { return autodiff.Zeros(device.Float32, shape...) }
		ids := autodiff.New([]int32{int32(r), 5})
		for i, got := range []struct {
			y    *autodiff.Tensor
			want device.Shape
		}{
			{AllReduce(c, gs[r], empty(0, 3), collective.Max), device.Shape{0, 3}},
			{AllGather(c, gs[r], empty(r+1, 0), 0), device.Shape{6, 0}},
			{AllGather(c, gs[r], empty(0, r+1), 1), device.Shape{0, 6}},
			{ReduceScatter(c, gs[r], empty(3, 0), 0, collective.Sum), device.Shape{1, 0}},
			{AllToAll(c, gs[r], empty(3, 0), []int{r, 2 - r, 1}...), device.Shape{3, 0}},
			{Scatter(c, gs[r], empty(0), 0, 1), device.Shape{0}},
			{AllReduce(c, gs[r], ids, collective.Or), device.Shape{2}},
			{AllGather(c, gs[r], autodiff.Reshape(ids, 1, 2), -1), device.Shape{1, 6}},
			{AllReduce(c, gs[r], autodiff.Scalar(1.5), collective.Min), device.Shape{}},
		} {
			if err := got.y.Err(); err != nil {
				return err
			}
			if !got.y.Shape().Equal(got.want) {
				return fmt.Errorf("result %d is %v; expected %v", i, got.y, got.want)
			}
		}
		return nil
	})
}

func TestAPassesGraphShowsItsGroupsOperationsWithTheirLinesAndTimes(t *testing.T) {
	w := newWorld(t, 2)
	gs := w.group("g")
	w.eachPass(func(c context.Context, r int) error {
		l := autodiff.Sum(AllReduce(c, gs[r], AllGather(c, gs[r], parameter(1, 2), 0), collective.Sum))
		if err := ctx.Backward(c, l); err != nil {
			return err
		}
		g, err := ctx.Graph(c)
		if err != nil {
			return err
		}
		var names []string
		for _, n := range g.Workers[0].Nodes {
			if names = append(names, n.Name); n.Name != "" && !strings.HasPrefix(n.Site, "tensors_test.go:") {
				return fmt.Errorf("%s was called at %q", n.Name, n.Site)
			}
		}
		if want := []string{"", "AllGather along axis 0", "AllReduce Sum"}; len(names) != 4 || !slices.Equal(names[:3], want) {
			return fmt.Errorf("the graph shows %q", names)
		}
		return nil
	})
}

func TestWhoDoesNotCallBackwardIsNamedAtTheEarliestDeadline(t *testing.T) {
	w := newWorld(t, 3)
	gs := w.group("g")
	for r, err := range w.passes(func(c context.Context, r int) error {
		y := autodiff.Sum(AllReduce(c, gs[r], parameter(1), collective.Sum))
		if r == 2 {
			return y.Err()
		}
		if r == 0 {
			var cancel context.CancelFunc
			c, cancel = context.WithTimeout(c, 100*time.Millisecond)
			defer cancel()
		}
		return ctx.Backward(c, y)
	}) {
		if r == 2 {
			require.NoError(t, err)
			continue
		}
		var late *collective.LateError
		require.ErrorAs(t, err, &late, "rank %d", r)
		require.Equal(t, []string{w.ws[2].Name()}, late.Missing)
	}
}

func TestAGroupOfOneAndFastModeNeedNothingElse(t *testing.T) {
	for size := 1; size <= 3; size++ {
		t.Run(fmt.Sprintf("p=%d", size), func(t *testing.T) {
			w := newWorld(t, size, remote)
			gs := w.group("g")
			w.works(gs)
			w.eachPass(func(c context.Context, r int) error {
				x := parameter(1)
				y, err := remote.Call(c, w.ws[(r+1)%size].Name(), AllReduce(c, gs[r], x, collective.Max))
				if err != nil {
					return err
				}
				if err := ctx.BackwardWith(c, ctx.Options{Mode: ctx.Fast}, autodiff.Sum(y)); err != nil {
					return err
				}
				got, err := gradientOf(c, x)
				if want := 0.7 * math.Cos(1); err == nil && math.Abs(got[0]-want) > 1e-12 {
					err = fmt.Errorf("the gradient is %v; expected %v", got, want)
				}
				return err
			})
		})
	}
}

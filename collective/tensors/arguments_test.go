package tensors

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
)

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
				require.Contains(t, m.Calls[0].Line, "arguments_test.go:")
				require.Contains(t, m.Calls[1].Line, "arguments_test.go:")
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
				require.ErrorContains(t, err, "arguments_test.go:")
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

func TestWhoGivesNoGroupGetsAFailedTensor(t *testing.T) {
	newWorld(t, 1).eachPass(func(c context.Context, _ int) error {
		x := autodiff.New([]float32{1, 2}).RequireGrad()
		for what, y := range map[string]*autodiff.Tensor{
			"AllReduce":     AllReduce(c, nil, x, collective.Sum),
			"Max":           AllReduce(c, nil, x, collective.Max),
			"Reduce":        Reduce(c, nil, x, collective.Sum, 0),
			"Prod":          Reduce(c, nil, x, collective.Prod, 0),
			"Broadcast":     Broadcast(c, nil, x, 0),
			"AllGather":     AllGather(c, nil, x, 0),
			"Gather":        Gather(c, nil, x, 0, 0),
			"ReduceScatter": ReduceScatter(c, nil, x, 0, collective.Sum),
			"AllToAll":      AllToAll(c, nil, x),
			"Scatter":       Scatter(c, nil, x, 0, 0),
			"Enter":         Enter(c, nil, x),
			"Leave":         Leave(c, nil, x),
		} {
			if err := y.Err(); !errors.Is(err, collective.ErrArguments) {
				return fmt.Errorf("%s: %w", what, err)
			}
		}
		return nil
	})
}

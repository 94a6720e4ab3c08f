package tensors

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/ctx"
)

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

package disttest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport/simnet"
)

// holder is an owner of tensors, and a context to go with it.
type holder struct {
	name  string
	c     context.Context
	arena *autodiff.Arena // nil: nobody
	over  bool
	says  string // what errors call it
}

func (h *holder) isPass() bool { return h.arena != nil && current(h.c) != nil }

// tensor is a new scalar of the holder's, with a history that begins at a parameter.
func (h *holder) tensor(t *testing.T) *autodiff.Tensor {
	w := param(2)
	if h.arena != nil {
		require.NoError(t, h.arena.Adopt(w))
	}
	return autodiff.Scale(w, 1)
}

// owners are one of each kind; end ends those that are to be over. Pass B is opened inside pass A.
func owners(t *testing.T, w *rpc.Worker, then func(all []*holder, end func())) {
	arena, closed, plain := autodiff.NewArena("step"), autodiff.NewArena("last step"), w.Context(t.Context())
	pass := func(name string, c context.Context, fn func(h *holder)) { //nolint:revive // as everywhere here
		_ = w.Pass(c, func(c context.Context) error {
			p := current(c)
			fn(&holder{name: name, c: c, arena: p.Arena(), says: "pass " + p.ID().String()})
			return nil
		})
	}
	pass("pass A", plain, func(a *holder) {
		pass("pass B", a.c, func(b *holder) {
			pass("finished pass", plain, func(f *holder) {
				c := &holder{name: "closed arena", c: plain, arena: closed, says: `arena "last step" (made at `}
				then([]*holder{
					{name: "nobody", c: plain}, a, b, f, {name: "arena", c: plain, arena: arena, says: `arena "step" (made at `}, c,
				}, func() {
					current(f.c).Leave()
					closed.Free()
					f.over, c.over = true, true
				})
			})
		})
	})
	arena.Free()
}

// meeting is a place where tensors of two owners may meet: x is the first one's, y the second
// one's. Where it has only the second one's context, y is nil.
type meetingPlace struct {
	name string
	meet func(t *testing.T, x, y *autodiff.Tensor, c context.Context) error
	ctx  bool // only the context of the second one is there
	root bool // x must have a history
	far  bool // the operation is on a goroutine of the library's, without a line of the user's
}

func meetingPlaces() (places []meetingPlace, served []rpc.Function) {
	take := rpc.Define("take", func(_ context.Context, x *autodiff.Tensor) (struct{}, error) { return struct{}{}, x.Err() })
	var gift *autodiff.Tensor
	give := rpc.Define("give", func(context.Context, struct{}) (*autodiff.Tensor, error) { return gift, nil })
	two := func(name string, f func(x, y *autodiff.Tensor) error) meetingPlace {
		return meetingPlace{name: name, meet: func(_ *testing.T, x, y *autodiff.Tensor, _ context.Context) error { return f(x, y) }}
	}
	under := func(name string, f func(c context.Context, x *autodiff.Tensor) error) meetingPlace {
		return meetingPlace{name: name, ctx: true, meet: func(_ *testing.T, x, _ *autodiff.Tensor, c context.Context) error { return f(c, x) }}
	}
	root := under("a distributed backward's root", func(c context.Context, x *autodiff.Tensor) error {
		return ctx.BackwardWith(c, ctx.Options{RetainGraph: true}, x)
	})
	root.root = true
	result := under("a result", func(c context.Context, x *autodiff.Tensor) error {
		gift = x
		_, err := give.Call(c, "worker0", struct{}{})
		return err
	})
	result.far = true
	roots := two("a local backward's roots", func(x, y *autodiff.Tensor) error {
		_, err := autodiff.BackwardWith(autodiff.Options{RetainGraph: true}, x, y)
		return err
	})
	roots.root = true
	return []meetingPlace{
		two("an op", func(x, y *autodiff.Tensor) error { return autodiff.Add(x, y).Err() }),
		two("an op that has an operand of nobody's before", func(x, y *autodiff.Tensor) error { return autodiff.Concat(0, param(1), x, y).Err() }),
		roots,
		two("the gradient of a root", func(x, y *autodiff.Tensor) error {
			_, err := autodiff.BackwardWith(autodiff.Options{RetainGraph: true, Grads: []*autodiff.Tensor{x}}, y)
			return err
		}),
		two("a sum of gradients", func(x, y *autodiff.Tensor) error { return autodiff.AddGradients(x, y).Err() }),
		two("a checkpoint's inputs", func(x, y *autodiff.Tensor) error {
			return autodiff.Checkpoint(func(in ...*autodiff.Tensor) []*autodiff.Tensor { return []*autodiff.Tensor{autodiff.Add(in[0], in[1])} }, x, y)[0].Err()
		}),
		two("an optimizer's step", func(x, y *autodiff.Tensor) error {
			return autodiff.Apply(kernels.Update{Rule: kernels.SGD, LR: 1, Step: 1}, []*autodiff.Tensor{y, x}, 0)
		}),
		under("an argument", func(c context.Context, x *autodiff.Tensor) error {
			_, err := take.Call(c, "worker0", x)
			return err
		}),
		under("an argument of a call that is not waited for", func(c context.Context, x *autodiff.Tensor) error {
			_, err := take.Async(c, "worker0", x).Wait(c)
			return err
		}),
		result,
		root,
	}, []rpc.Function{take, give}
}

// want is the dumb rule: what is over is an error, one's own and nobody's are welcome everywhere,
// and no others.
func (p *meetingPlace) want(a, b *holder) error {
	switch {
	case p.ctx && p.root && !b.isPass():
		return ctx.ErrNoPass
	case p.ctx && b.over && b.isPass():
		return ctx.ErrLeft // the context has ended
	case a.over, !p.ctx && b.over:
		return autodiff.ErrFreed
	case a.arena == nil, a == b && (a.isPass() || !p.ctx), !p.ctx && b.arena == nil:
		return nil
	case !a.isPass(), !p.ctx && !b.isPass():
		return autodiff.ErrMixedArenas
	}
	return autodiff.ErrMixedPasses
}

// Each error names both owners, the lines of the operation and of the tensor, and what mends it;
// and that does mend it.
func TestTensorsOfEveryTwoOwnersMixOrAreRefusedWithWhatMendsIt(t *testing.T) {
	places, served := meetingPlaces()
	cases := 0
	bubble(t, 1, simnet.Config{}, func(t *testing.T, w *world) {
		for pi := range places {
			p := &places[pi]
			owners(t, w.ws[0], func(all []*holder, end func()) {
				made := map[[3]*holder]*autodiff.Tensor{}
				for _, a := range all {
					for _, b := range all {
						made[[3]*holder{a, b, a}], made[[3]*holder{a, b, b}] = a.tensor(t), b.tensor(t)
						if a == b {
							made[[3]*holder{a, b, nil}] = a.tensor(t)
						}
					}
				}
				end()
				for _, a := range all {
					for _, b := range all {
						name := p.name + ": " + a.name + " and " + b.name
						x, y := made[[3]*holder{a, b, a}], made[[3]*holder{a, b, b}]
						if a == b {
							y = made[[3]*holder{a, b, nil}]
						}
						err, want := p.meet(t, x, y, b.c), p.want(a, b)
						cases++
						if want == nil {
							require.NoError(t, err, name)
							continue
						}
						if errors.Is(want, ctx.ErrLeft) && a.over { // both are true
							require.Error(t, err, name)
							continue
						}
						require.ErrorIs(t, err, want, name)
						if errors.Is(want, ctx.ErrLeft) || errors.Is(want, ctx.ErrNoPass) {
							continue
						}
						requireSays(t, name, err, p, a, b)
						if !a.over && (p.ctx || !b.over) && !p.root {
							require.NoError(t, p.meet(t, x.Copy(), y, b.c), name)
						}
					}
				}
			})
		}
	}, served...)
	require.Equal(t, len(places)*36, cases)
}

func requireSays(t *testing.T, name string, err error, p *meetingPlace, a, b *holder) {
	t.Helper()
	text := err.Error()
	lines := 2
	if p.far {
		lines = 1
	}
	require.GreaterOrEqual(t, strings.Count(text, "owners_test.go:"), lines, "%s: %s", name, text)
	require.Contains(t, text, "Tensor.Copy", name)
	var e *autodiff.OwnerError
	require.ErrorAs(t, err, &e, name)
	for _, h := range []*holder{a, b} {
		if h.arena != nil && (h == a || !p.ctx || p.root) {
			require.Contains(t, text, h.says, name)
		}
	}
	switch {
	case errors.Is(err, autodiff.ErrFreed):
		require.NotContains(t, text, "two passes", name)
		require.True(t, e.Owner.Over || e.Meets.Over, name)
	case errors.Is(err, autodiff.ErrMixedArenas):
		require.NotContains(t, text, "two passes", name)
		require.NotContains(t, text, "Worker.Pass", name)
	case p.ctx && !p.root:
		require.Contains(t, text, "use the context that Worker.Pass gives", name)
		require.Contains(t, text, map[bool]string{true: "carries pass ", false: "carries no pass"}[b.isPass()], name)
	}
	if a.isPass() && b.isPass() && !a.over && !b.over {
		require.Contains(t, text, "opened inside the other", name)
	}
}

func TestATensorIsGivenToOnePassAndACopyOfItToAnother(t *testing.T) {
	bubble(t, 1, simnet.Config{}, func(t *testing.T, w *world) {
		owners(t, w.ws[0], func(all []*holder, end func()) {
			end()
			for _, b := range all {
				if !b.isPass() {
					continue
				}
				for _, a := range all {
					if a.over {
						continue
					}
					name := a.name + " to " + b.name
					x := a.tensor(t)
					err := ctx.Own(b.c, x).Err()
					switch {
					case b.over:
						require.Error(t, err, name)
						continue
					case a.arena == nil || a == b:
						require.NoError(t, err, name)
						continue
					case a.isPass():
						require.ErrorIs(t, err, autodiff.ErrMixedPasses, name)
					default:
						require.ErrorIs(t, err, autodiff.ErrMixedArenas, name)
					}
					require.ErrorContains(t, err, a.says, name)
					require.ErrorContains(t, err, b.says, name)
					y := ctx.Own(b.c, x.Copy())
					require.NoError(t, y.Err(), name)
					require.Same(t, b.arena, y.Owner(), name)
					require.False(t, y.RequiresGrad(), name)
					require.Equal(t, values(t, x), values(t, y), name)
				}
			}
		})
	})
}

func TestWhoMixedPassesElsewhereIsToldByTheSameError(t *testing.T) {
	var fn *rpc.Func[*autodiff.Tensor, *autodiff.Tensor]
	fn = rpc.Define("nested", func(c context.Context, x *autodiff.Tensor) (y *autodiff.Tensor, err error) {
		w, _ := rpc.FromContext(c)
		err = w.Pass(c, func(c context.Context) error {
			y, err = fn.Call(c, "worker0", x)
			return err
		})
		return y, err
	})
	bubble(t, 2, simnet.Config{}, func(t *testing.T, w *world) {
		w.pass(t, 0, func(c context.Context) {
			_, err := fn.Call(c, "worker1", param(1))
			require.ErrorIs(t, err, autodiff.ErrMixedPasses)
			var e *autodiff.OwnerError
			require.ErrorAs(t, err, &e)
			require.Equal(t, current(c).ID().String(), e.Owner.Pass)
			require.True(t, e.Sent && e.Nested)
			require.ErrorContains(t, err, "one pass was opened inside the other")
		})
	}, fn)
}

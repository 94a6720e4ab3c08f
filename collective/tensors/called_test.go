package tensors

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/rpc"
)

// together has a pass of worker 0 call a function on all members of a group at once, itself too.
func (w *world) together(c context.Context, fn *rpc.Func[part, *autodiff.Tensor], xs []*autodiff.Tensor) ([]*autodiff.Tensor, error) {
	ys, errs := make([]*autodiff.Tensor, len(xs)), make(chan error, len(xs))
	for k := range xs {
		go func() {
			var err error
			ys[k], err = fn.Call(c, w.ws[k].Name(), part{k, xs[k]})
			errs <- err
		}()
	}
	var err error
	for range xs {
		err = errors.Join(err, <-errs)
	}
	return ys, err
}

// part is what one member is given.
type part struct {
	Rank int
	X    *autodiff.Tensor
}

// called computes a member's part of the program in a function that is called, and gives its loss.
func (p *program) called(c context.Context, w *world, gs [][]*collective.Group, k int, leaf *autodiff.Tensor) (*autodiff.Tensor, error) {
	vars := []*autodiff.Tensor{leaf}
	for i, s := range p.steps {
		y, err := s.mine(c, w, gs, k, vars)
		if err != nil {
			return nil, fmt.Errorf("step %d, %s: %w", i, s.what, err)
		}
		vars = append(vars, y)
	}
	return loss(leaf, vars, p.losses[k]), nil
}

func TestGradientsOfRandomGraphsInCalledFunctionsAreThoseOfOneProcess(t *testing.T) {
	for size := 2; size <= 4; size++ {
		t.Run(fmt.Sprintf("p=%d", size), func(t *testing.T) {
			var w *world
			var gs [][]*collective.Group
			var p *program
			play := rpc.Define("play", func(c context.Context, in part) (*autodiff.Tensor, error) {
				return p.called(c, w, gs, in.Rank, in.X)
			})
			w = newWorld(t, size, remote, play)
			for i, ranks := range newProgram(rand.New(rand.NewPCG(1, 1)), size).groups {
				gs = append(gs, w.group(fmt.Sprint("g", i), ranks...))
			}
			for i := range soak.Cases(60) {
				r := rand.New(rand.NewPCG(uint64(size), 1000+uint64(i)))
				p = newProgram(r, size)
				want := p.whole(t, 2+r.IntN(12))
				what := fmt.Sprintf("p=%d, case %d:", size, i)
				for k, s := range p.steps {
					what += fmt.Sprintf("\n%d: %s", k+1, s.what)
				}
				what += fmt.Sprint("\nlosses of ", p.losses)
				err := w.ws[0].Pass(t.Context(), func(c context.Context) error {
					leaves := make([]*autodiff.Tensor, size)
					for k := range leaves {
						if leaves[k] = p.leaf(k); p.returns[k] {
							leaves[k].RequireGrad()
						}
					}
					losses, err := w.together(c, play, leaves)
					if err != nil {
						return err
					}
					total := autodiff.Scale(autodiff.Sum(leaves[0]), 0) // there is always something
					for _, l := range losses {
						total = autodiff.Add(total, l)
					}
					for again := i%2 == 0; ; again = false { // gradients of two backwards add up
						if err := ctx.BackwardWith(c, ctx.Options{RetainGraph: again, Anomaly: i%3 == 0}, total); err != nil {
							return err
						}
						if !again {
							break
						}
						for k := range want {
							for j := range want[k] {
								want[k][j] *= 2
							}
						}
					}
					for k, leaf := range leaves {
						got, err := gradientOf(c, leaf)
						if err == nil {
							err = close6(got, want[k], what)
						}
						if err != nil {
							return err
						}
					}
					return nil
				})
				require.NoError(t, err, what)
			}
		})
	}
}

// within calls a function on all members in a pass of worker 0, and gives how that ended on each.
func within(t *testing.T, size int, fn func(c context.Context, g *collective.Group, x *autodiff.Tensor) (*autodiff.Tensor, error),
	then func(c context.Context, w *world, ys []*autodiff.Tensor, err error) error) {
	t.Helper()
	var gs []*collective.Group
	inside := rpc.Define("inside", func(c context.Context, in part) (*autodiff.Tensor, error) { return fn(c, gs[in.Rank], in.X) })
	w := newWorld(t, size, inside)
	gs = w.group("g")
	require.NoError(t, w.ws[0].Pass(t.Context(), func(c context.Context) error {
		xs := make([]*autodiff.Tensor, size)
		for k := range xs {
			xs[k] = parameter(float64(k+1), 2, 3)
		}
		ys, err := w.together(c, inside, xs)
		return then(c, w, ys, err)
	}))
	w.works(gs)
}

func TestACalledFunctionsResultsHaveTheBitsOfThoseThatAreNotRecorded(t *testing.T) {
	const size = 3
	ops := []collective.Op{collective.Sum, collective.Mean, collective.Scaled(0.3), collective.Prod, collective.Max, collective.Min}
	within(t, size, func(c context.Context, g *collective.Group, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		r := rand.New(rand.NewPCG(uint64(g.Rank()), 5))
		draw := func(d device.Dtype, rows int) *autodiff.Tensor {
			v := make([]float64, rows*700)
			for i := range v {
				v[i] = r.NormFloat64() * 100
			}
			v[0] = math.Copysign(0, -1)
			return autodiff.Cast(autodiff.New(v, rows, 700), d).RequireGrad()
		}
		for _, d := range []device.Dtype{device.Float32, device.Float64} {
			x, y := draw(d, 7), draw(d, g.Rank()+2)
			all := map[string]func(c context.Context) *autodiff.Tensor{
				"AllGather": func(c context.Context) *autodiff.Tensor { return AllGather(c, g, y, 0) },
				"AllToAll":  func(c context.Context) *autodiff.Tensor { return AllToAll(c, g, y) },
				"Broadcast": func(c context.Context) *autodiff.Tensor { return Broadcast(c, g, x, 1) },
				"Gather":    func(c context.Context) *autodiff.Tensor { return Gather(c, g, y, 0, 1) },
				"Scatter":   func(c context.Context) *autodiff.Tensor { return Scatter(c, g, x, 1, 1) },
				"Enter":     func(c context.Context) *autodiff.Tensor { return Enter(c, g, x) },
				"Leave":     func(c context.Context) *autodiff.Tensor { return Leave(c, g, x) },
			}
			for _, op := range ops {
				all["AllReduce "+op.String()] = func(c context.Context) *autodiff.Tensor { return AllReduce(c, g, x, op) }
				all["Reduce "+op.String()] = func(c context.Context) *autodiff.Tensor { return Reduce(c, g, x, op, 2) }
				all["ReduceScatter "+op.String()] = func(c context.Context) *autodiff.Tensor { return ReduceScatter(c, g, x, 1, op) }
			}
			for _, name := range slices.Sorted(maps.Keys(all)) {
				got, want := all[name](c), all[name](ctx.NoGrad(c))
				if (got == nil) != (want == nil) {
					return nil, fmt.Errorf("%s gives %v; expected %v", name, got, want)
				}
				if got == nil {
					continue
				}
				if err := errors.Join(got.Err(), want.Err()); err != nil {
					return nil, err
				}
				a, err := valueOf(got)
				if err != nil {
					return nil, err
				}
				b, err := valueOf(want)
				if err != nil {
					return nil, err
				}
				if !got.RequiresGrad() || !got.Shape().Equal(want.Shape()) || string(a) != string(b) {
					return nil, fmt.Errorf("%s of %v is %v; expected %v", name, d, got, want)
				}
			}
		}
		return autodiff.Scale(x, 1), nil
	}, func(_ context.Context, _ *world, _ []*autodiff.Tensor, err error) error { return err })
}

// valueOf is the bytes of a tensor.
func valueOf(x *autodiff.Tensor) ([]byte, error) {
	b, err := x.Acquire()
	if err != nil {
		return nil, err
	}
	defer b.Release() //nolint:errcheck // ours
	return onHost(b)
}

func TestParametersOfCalledWorkersGetTheGradientsOfTheCallersLoss(t *testing.T) {
	const size = 3
	var params [size]*autodiff.Tensor
	var devices [size]device.Device
	look := rpc.Define("look", func(c context.Context, rank int) ([]float64, error) { return gradientOf(c, params[rank]) })
	var gs []*collective.Group
	layer := rpc.Define("layer", func(c context.Context, in part) (*autodiff.Tensor, error) { // a tensor-parallel layer
		dev := devices[in.Rank]
		y := AllReduce(c, gs[in.Rank], autodiff.Mul(autodiff.To(in.X, dev), autodiff.To(params[in.Rank], dev)), collective.Sum)
		if y.Err() == nil && y.Device() != dev.ID() {
			return nil, fmt.Errorf("it is %v", y)
		}
		y = autodiff.To(y, device.Host())
		return y, y.Err()
	})
	w := &world{t, rpctest.WorldWith(t, rpctest.Net(), size, func(k int, cfg *rpc.Config) {
		devices[k] = device.NewSim(device.SimConfig{Index: k})
		cfg.Functions, cfg.Devices = []rpc.Function{layer, look}, devices[k:k+1]
	})}
	gs = w.group("g")
	for k := range params {
		params[k] = parameter(float64(k+1), 1)
	}
	require.NoError(t, w.ws[0].Pass(t.Context(), func(c context.Context) error {
		x := parameter(5, 7)
		ys, err := w.together(c, layer, []*autodiff.Tensor{x, x, x})
		if err != nil {
			return err
		}
		if err := ctx.Backward(c, autodiff.Sum(ys[1])); err != nil { // all have the same; it counts once
			return err
		}
		got, err := gradientOf(c, x)
		if err == nil && fmt.Sprint(got) != "[6 3]" {
			err = fmt.Errorf("the gradient of x is %v", got)
		}
		for k := range size {
			var of []float64
			if err == nil {
				of, err = look.Call(c, w.ws[k].Name(), k)
			}
			if err == nil && fmt.Sprint(of) != "[5 7]" {
				err = fmt.Errorf("the gradient on rank %d is %v", k, of)
			}
		}
		return err
	}))
}

func TestFastModeTakesCalledFunctionsWhoseResultsAreAllUsed(t *testing.T) {
	within(t, 3, func(c context.Context, g *collective.Group, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		y := AllReduce(c, g, autodiff.Mul(x, x), collective.Mean)
		return y, y.Err()
	}, func(c context.Context, w *world, ys []*autodiff.Tensor, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.BackwardWith(c, ctx.Options{Mode: ctx.Fast}, autodiff.Sum(autodiff.Add(ys[0], autodiff.Add(ys[1], ys[2])))); err != nil {
			return err
		}
		all, err := ctx.Gradients(c)
		if err != nil || len(all) != 3 {
			return fmt.Errorf("%d gradients: %w", len(all), err)
		}
		for x, g := range all {
			v, err := autodiff.Values[float64](x)
			got, gerr := autodiff.Values[float64](g)
			if err := errors.Join(err, gerr); err != nil {
				return err
			}
			for i := range v {
				if math.Abs(got[i]-2*v[i]) > 1e-12 {
					return fmt.Errorf("the gradient of %v is %v", v, got)
				}
			}
		}
		return nil
	})
}

// A worker's own operations are those of all passes, and what it calls is its own pass's alone.
func TestOperationsOfCalledFunctionsStandBesideThoseOfMembersPasses(t *testing.T) {
	const size = 2
	var gs, hs []*collective.Group
	inside := rpc.Define("inside", func(c context.Context, in part) (*autodiff.Tensor, error) {
		y := AllReduce(c, hs[in.Rank], autodiff.Sin(autodiff.Scale(in.X, float64(in.Rank+1))), collective.Prod)
		return y, y.Err()
	})
	w := newWorld(t, size, inside)
	gs, hs = w.group("g"), w.group("h")
	in := []*autodiff.Tensor{parameter(0.3, 2), parameter(0.4, -1)} // in one process
	y := autodiff.Add(in[0], in[1])
	z := autodiff.Mul(autodiff.Sin(y), autodiff.Sin(autodiff.Scale(y, 2)))
	u := autodiff.Mul(z, autodiff.Scale(y, 3))
	whole, err := autodiff.Backward(autodiff.Scale(autodiff.Sum(u), 1+2))
	require.NoError(t, err)
	w.eachPass(func(c context.Context, r int) error {
		x := parameter([][]float64{{0.3, 2}, {0.4, -1}}[r]...)
		y := AllReduce(c, gs[r], x, collective.Sum)
		z := autodiff.Scale(y, 3)
		if r == 0 {
			zs, err := w.together(c, inside, []*autodiff.Tensor{y, y})
			if err != nil {
				return err
			}
			z = zs[1]
		}
		u := AllReduce(c, gs[r], z, collective.Prod)
		if err := ctx.Backward(c, autodiff.Scale(autodiff.Sum(u), float64(r+1))); err != nil {
			return err
		}
		got, err := gradientOf(c, x)
		if err != nil {
			return err
		}
		want, err := autodiff.Values[float64](whole.Of(in[r]))
		if err != nil {
			return err
		}
		return close6(got, want, "")
	})
}

func TestAnUnusedResultOfACalledFunctionNeitherHangsNorMovesAByte(t *testing.T) {
	const size = 3
	var sent counts
	var gs []*collective.Group
	inside := rpc.Define("inside", func(c context.Context, in part) (*autodiff.Tensor, error) {
		y := AllGather(c, gs[in.Rank], AllReduce(c, gs[in.Rank], in.X, collective.Max), 0)
		return y, y.Err()
	})
	w := &world{t, rpctest.World(t, sent.net(), size, inside)}
	gs = w.group("g")
	require.NoError(t, w.ws[0].Pass(t.Context(), func(c context.Context) error {
		x, own := parameter(make([]float64, 5000)...), parameter(1, 2)
		if _, err := w.together(c, inside, []*autodiff.Tensor{x, x, x}); err != nil {
			return err
		}
		w.works(gs) // nothing is under way any more
		messages := sent.messages.Load()
		if err := ctx.Backward(c, autodiff.Sum(autodiff.Mul(own, own))); err != nil {
			return err
		}
		if n := sent.messages.Load() - messages; n > 0 {
			return fmt.Errorf("%d messages were sent", n)
		}
		return nil
	}))
}

func TestAFailureInACalledFunctionsPartOfABackwardSaysWhere(t *testing.T) {
	cause := errors.New("no more")
	within(t, 3, func(c context.Context, g *collective.Group, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		x = autodiff.Scale(x, 2)
		if g.Rank() == 1 {
			if _, err := x.OnGrad(func(*autodiff.Tensor) *autodiff.Tensor { return autodiff.Failed(cause) }); err != nil {
				return nil, err
			}
		}
		y := AllReduce(c, g, x, collective.Sum)
		return y, y.Err()
	}, func(c context.Context, w *world, ys []*autodiff.Tensor, err error) error {
		if err != nil {
			return err
		}
		err = ctx.Backward(c, autodiff.Sum(ys[2]))
		var f *ctx.Failure
		if !errors.As(err, &f) || f.Worker != w.ws[1].Name() || !strings.Contains(f.Error(), cause.Error()) {
			return fmt.Errorf("the backward ended with %w", err)
		}
		return nil
	})
}

func TestAWorkerLostInACalledFunctionsPartOfABackwardIsNamed(t *testing.T) {
	const size = 3
	var w *world
	var gs []*collective.Group
	inside := rpc.Define("inside", func(c context.Context, in part) (*autodiff.Tensor, error) {
		y := autodiff.Scale(AllReduce(c, gs[in.Rank], in.X, collective.Sum), 2)
		if in.Rank == 2 {
			_, err := y.OnGrad(func(*autodiff.Tensor) *autodiff.Tensor { _ = w.ws[1].Close(); return nil })
			return y, errors.Join(err, y.Err())
		}
		return y, y.Err()
	})
	w = newWorld(t, size, inside)
	gs = w.group("g")
	require.NoError(t, w.ws[0].Pass(t.Context(), func(c context.Context) error {
		ys, err := w.together(c, inside, []*autodiff.Tensor{parameter(1), parameter(2), parameter(3)})
		if err != nil {
			return err
		}
		if err := ctx.Backward(c, autodiff.Sum(ys[2])); !errors.Is(err, ctx.ErrPeerLost) || !strings.Contains(err.Error(), w.ws[1].Name()) {
			return fmt.Errorf("the backward ended with %w", err)
		}
		return nil
	}))
}

func TestThePassesGraphShowsTheOperationsOfCalledFunctions(t *testing.T) {
	within(t, 2, func(c context.Context, g *collective.Group, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		y := AllReduce(c, g, x, collective.Sum)
		return y, y.Err()
	}, func(c context.Context, w *world, ys []*autodiff.Tensor, err error) error {
		if err != nil {
			return err
		}
		graph, err := ctx.Graph(c)
		if err != nil {
			return err
		}
		ends := 0
		for _, part := range graph.Workers {
			for _, n := range part.Nodes {
				if strings.Contains(n.Name, "AllReduce Sum") {
					ends++
				}
			}
		}
		if ends != 2 {
			return fmt.Errorf("%d messages of the sum are shown: %+v", ends, graph.Workers)
		}
		return nil
	})
}

func TestWhoCallsAnOperationInItsOwnCodeDoesNotMeetThoseThatAreCalled(t *testing.T) {
	var gs []*collective.Group
	inside := rpc.Define("inside", func(c context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		y := AllReduce(c, gs[1], x, collective.Sum)
		return y, y.Err()
	})
	w := newWorld(t, 2, inside)
	gs = w.group("g")
	require.NoError(t, w.ws[0].Pass(t.Context(), func(c context.Context) error {
		called := make(chan error)
		go func() { _, err := inside.Call(c, w.ws[1].Name(), parameter(1)); called <- err }()
		err := AllReduce(c, gs[0], parameter(1), collective.Sum).Err()
		if theirs := <-called; !errors.Is(err, collective.ErrMismatch) || theirs == nil || !strings.Contains(theirs.Error(), "in a pass that is called, ") {
			return fmt.Errorf("they ended with %w and %w", err, theirs)
		}
		return nil
	}))
	w.works(gs)
}

func TestAnErrorInACalledFunctionFailsTheOperationOnAll(t *testing.T) {
	within(t, 3, func(c context.Context, g *collective.Group, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		if g.Rank() == 2 {
			x = autodiff.Failed(errors.New("none"))
		}
		y := AllReduce(c, g, x, collective.Prod)
		if y.Err() == nil {
			return nil, errors.New("it went well")
		}
		if z := AllToAll(c, g, autodiff.Zeros(device.Float64, 3), 3-g.Rank(), 0, 0); z.Err() == nil {
			return nil, errors.New("that, too")
		}
		return parameter(1), nil
	}, func(_ context.Context, _ *world, _ []*autodiff.Tensor, err error) error { return err })
}

func TestPassesThatCallAtOnceAreToldApartByScopes(t *testing.T) {
	const size = 3
	var gs []*collective.Group
	inside := rpc.Define("inside", func(c context.Context, in part) (*autodiff.Tensor, error) {
		pass, _ := ctx.From(c)
		c = collective.Scope(c, pass.ID().String())
		y := AllReduce(c, gs[in.Rank], AllReduce(c, gs[in.Rank], in.X, collective.Sum), collective.Mean)
		return y, y.Err()
	})
	w := newWorld(t, size, inside)
	gs = w.group("g")
	for range soak.Cases(20) {
		w.eachPass(func(c context.Context, r int) error {
			x := parameter(float64(r), 1)
			ys, err := w.together(c, inside, []*autodiff.Tensor{x, x, x})
			if err != nil {
				return err
			}
			if err := ctx.Backward(c, autodiff.Sum(ys[(r+1)%size])); err != nil {
				return err
			}
			got, err := gradientOf(c, x)
			if err == nil && fmt.Sprint(got) != "[3 3]" {
				err = fmt.Errorf("the gradient is %v", got)
			}
			return err
		})
	}
}

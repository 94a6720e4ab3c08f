package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc"
)

type pair struct{ A, B *autodiff.Tensor }

type route struct {
	Path []string // who is still to be called
	N    int
}

type byRef struct{ T rpc.RRef[*autodiff.Tensor] }

// What every worker serves.
var (
	// Double gives twice its argument.
	Double = rpc.Define("workload/double", func(_ context.Context, n int) (int, error) { return 2 * n, nil })
	sum    = rpc.Define("workload/sum", func(_ context.Context, t *autodiff.Tensor) (float64, error) { return total(t) })
	add    = rpc.Define("workload/add", func(_ context.Context, in pair) (*autodiff.Tensor, error) { return autodiff.Add(in.A, in.B), nil })
	count  = rpc.Define("workload/count", func(_ context.Context, n int) (*autodiff.Tensor, error) { return numbers(n), nil })
	sumOf  = rpc.Define("workload/sum-of", func(c context.Context, in byRef) (float64, error) {
		defer in.T.Release()
		t, err := in.T.ToHere(c)
		if err != nil {
			return 0, err
		}
		return total(t)
	})
	hang = rpc.Define("workload/hang", func(c context.Context, _ struct{}) (struct{}, error) {
		<-c.Done()
		return struct{}{}, context.Cause(c)
	})
)

// Functions are what every worker serves.
func Functions() []rpc.Function {
	return []rpc.Function{Double, sum, add, count, sumOf, hang, followed()}
}

// followed calls itself along a path of workers, and adds one at each.
func followed() *rpc.Func[route, int] {
	var f *rpc.Func[route, int]
	f = rpc.Define("workload/follow", func(c context.Context, in route) (int, error) {
		if len(in.Path) == 0 {
			return in.N, nil
		}
		return f.Call(c, in.Path[0], route{in.Path[1:], in.N + 1})
	})
	return f
}

// numbers is 0, 1, 2, … below 1000, again and again.
func numbers(n int) *autodiff.Tensor {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(i % 1000)
	}
	return autodiff.New(v)
}

func sumOfNumbers(n int) float64 {
	rest := n % 1000
	return float64(n/1000)*999*1000/2 + float64(rest)*float64(rest-1)/2
}

func total(t *autodiff.Tensor) (sum float64, err error) {
	v, err := autodiff.Values[float32](t)
	for _, x := range v {
		sum += float64(x)
	}
	return sum, err
}

// Mix makes random calls to the other workers and holds their results to what is known.
type Mix struct {
	W        *rpc.Worker
	Rand     *rand.Rand
	MaxElems int // of a tensor
}

// Step is one of the mix. It fails where a result is wrong, and where a call fails; wrong results
// match ErrWrong.
func (m *Mix) Step(c context.Context) error {
	c = m.W.Context(c)
	others := m.others()
	to := others[m.Rand.IntN(len(others))]
	third := others[m.Rand.IntN(len(others))]
	n := 1 + m.size()
	steps := []func() error{
		func() error { v, err := Double.Call(c, to, n); return equal("double", v, 2*n, err) },
		func() error { v, err := sum.Call(c, to, numbers(n)); return equal("sum", v, sumOfNumbers(n), err) },
		func() error { return m.fetch(c, to, n) },
		func() error { return m.lend(c, to, third, n) },
		func() error { return m.backward(c, to, min(n, 1<<16)) },
		func() error { return m.travel(c) },
		func() error { return m.cancel(c, to) },
		func() error { return m.many(c, to) },
	}
	return steps[m.Rand.IntN(len(steps))]()
}

// ErrWrong is the error of a result that is not what it must be.
var ErrWrong = errors.New("wrong result")

func equal[T comparable](what string, got, want T, err error) error {
	if err == nil && got != want {
		err = fmt.Errorf("%w of %s: %v; expected %v", ErrWrong, what, got, want)
	}
	return err
}

func (m *Mix) others() (names []string) {
	for _, info := range m.W.Workers() {
		if info.Name != m.W.Name() {
			names = append(names, info.Name)
		}
	}
	return names
}

// size is small mostly, and any magnitude up to MaxElems alike.
func (m *Mix) size() int {
	n := m.MaxElems
	for n > 1 && m.Rand.IntN(3) > 0 {
		n /= 8
	}
	return m.Rand.IntN(max(n, 1))
}

// fetch makes a tensor there, fetches it and lets it go.
func (m *Mix) fetch(c context.Context, to string, n int) error {
	ref := count.Remote(c, to, n)
	defer ref.Release()
	t, err := ref.ToHere(c)
	if err != nil {
		return err
	}
	v, err := total(t)
	return equal("fetch", v, sumOfNumbers(n), err)
}

// lend makes a tensor at one worker and has another one read it.
func (m *Mix) lend(c context.Context, owner, reader string, n int) error {
	ref := count.Remote(c, owner, n)
	defer ref.Release()
	v, err := sumOf.Call(c, reader, byRef{ref})
	return equal("lend", v, sumOfNumbers(n), err)
}

// backward runs a pass through another worker.
func (m *Mix) backward(c context.Context, to string, n int) error {
	return m.W.Pass(c, func(c context.Context) error {
		a, b := numbers(n).RequireGrad(), numbers(n).RequireGrad()
		s, err := add.Call(c, to, pair{a, b})
		if err != nil {
			return err
		}
		if err := ctx.Backward(c, autodiff.Sum(autodiff.Mul(s, a))); err != nil {
			return err
		}
		grads, err := ctx.Gradients(c)
		if err != nil {
			return err
		}
		v, err := total(grads[b]) // of sum((a+b)·a) by b: a
		return equal("backward", v, sumOfNumbers(n), err)
	})
}

// travel calls along a path that may come back here.
func (m *Mix) travel(c context.Context) error {
	all := append(m.others(), m.W.Name())
	r := route{N: 7}
	for range 1 + m.Rand.IntN(4) {
		next := all[m.Rand.IntN(len(all))]
		r.Path = append(r.Path, next)
	}
	last := r.Path[0]
	v, err := followed().Call(c, last, route{r.Path[1:], r.N})
	return equal("travel", v, 7+len(r.Path)-1, err)
}

// cancel gives a call up.
func (m *Mix) cancel(c context.Context, to string) error {
	c, stop := context.WithCancel(c)
	defer time.AfterFunc(time.Duration(m.Rand.IntN(int(5*time.Millisecond))), stop).Stop()
	_, err := hang.Call(c, to, struct{}{})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return fmt.Errorf("cancelled: %w", err)
}

// many makes calls at once.
func (m *Mix) many(c context.Context, to string) error {
	futures := make([]*rpc.Future[int], 64)
	for i := range futures {
		futures[i] = Double.Async(c, to, i)
	}
	errs := make([]error, len(futures))
	for i, f := range futures {
		v, err := f.Wait(c)
		errs[i] = equal("double", v, 2*i, err)
	}
	i := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if i < 0 {
		return nil
	}
	return errs[i]
}

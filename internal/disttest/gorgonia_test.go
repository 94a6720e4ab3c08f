package disttest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/weft-project/weft/autodiff"
	weftgorgonia "github.com/weft-project/weft/autodiff/gorgonia"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/rpc"
)

// gorgoniaNet is a perceptron written with Gorgonia's own functions; hidden is where it is cut
// between workers.
type gorgoniaNet struct {
	x, y, hidden, loss *gorgonia.Node
	params             []*gorgonia.Node // one on each side of the cut
}

func newGorgoniaNet() (n gorgoniaNet) {
	r := rand.New(rand.NewPCG(3, 3))
	g := gorgonia.NewGraph()
	leaf := func(name string, rows, columns int) *gorgonia.Node {
		v := make([]float64, rows*columns)
		for i := range v {
			v[i] = r.NormFloat64()
		}
		return gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithShape(rows, columns), gorgonia.WithName(name),
			gorgonia.WithValue(tensor.New(tensor.WithShape(rows, columns), tensor.WithBacking(v))))
	}
	n.x, n.y = leaf("x", 8, 5), leaf("y", 8, 2)
	n.params = []*gorgonia.Node{leaf("w1", 5, 6), leaf("w2", 6, 2)}
	n.hidden = gorgonia.Must(gorgonia.Rectify(gorgonia.Must(gorgonia.Mul(n.x, n.params[0]))))
	missed := gorgonia.Must(gorgonia.Sub(gorgonia.Must(gorgonia.Mul(n.hidden, n.params[1])), n.y))
	n.loss = gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Square(missed))))
	return n
}

// onTape trains it on Gorgonia's own machine.
func (n gorgoniaNet) onTape(t *testing.T, steps int, rate float64) (losses []float64) {
	t.Helper()
	_, err := gorgonia.Grad(n.loss, n.params...)
	require.NoError(t, err)
	var loss gorgonia.Value
	gorgonia.Read(n.loss, &loss)
	vm := gorgonia.NewTapeMachine(n.loss.Graph(), gorgonia.BindDualValues(n.params...))
	defer vm.Close() //nolint:errcheck // it holds nothing
	solver := gorgonia.NewVanillaSolver(gorgonia.WithLearnRate(rate))
	for range steps {
		vm.Reset()
		require.NoError(t, vm.RunAll())
		losses = append(losses, loss.Data().(float64))
		require.NoError(t, solver.Step(gorgonia.NodesToValueGrads(n.params)))
	}
	return losses
}

func TestAModelOfGorgoniasThatIsCutBetweenTwoWorkersTrainsAsOnItsOwnMachine(t *testing.T) {
	const steps, rate = 10, 0.05
	want := newGorgoniaNet().onTape(t, steps, rate)
	require.Less(t, want[steps-1], want[0]/2)
	n := newGorgoniaNet()
	before := must(weftgorgonia.From([]*gorgonia.Node{n.x, n.params[0]}, []*gorgonia.Node{n.hidden}))
	after := must(weftgorgonia.From([]*gorgonia.Node{n.hidden, n.params[1], n.y}, []*gorgonia.Node{n.loss}))
	params := must(weftgorgonia.FromParams(n.params...))
	first := rpc.Define("first", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		return before.Call(x, params[0]), nil
	})
	x, y := weftgorgonia.FromValue(n.x.Value()), weftgorgonia.FromValue(n.y.Value())
	var steppers []*optim.Local
	for _, p := range params {
		steppers = append(steppers, must(optim.New(optim.SGD{LR: rate}, p)))
	}
	bubble(t, 2, delays, func(t *testing.T, w *world) {
		var losses []float64
		for range steps {
			w.pass(t, 0, func(c context.Context) {
				loss := after.Call(must(first.Call(c, "worker1", x)), params[1], y)
				losses = append(losses, must(loss.Item()))
				require.NoError(t, ctx.Backward(c, loss))
				require.NoError(t, steppers[1].Step(must(ctx.Gradients(c))))
				require.NoError(t, steppers[0].Step(must(w.part(t, c, 1).Gradients())))
			})
		}
		require.InDeltaSlice(t, want, losses, 1e-10, fmt.Sprint(losses))
	}, first)
	require.NoError(t, weftgorgonia.ToParams(n.params, params))
}

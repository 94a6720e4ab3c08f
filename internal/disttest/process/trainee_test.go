package process

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel/outer"
	"github.com/weft-project/weft/parallel/shard"
)

// trainee trains with the other members of its group.
type trainee struct {
	*partner
	param *autodiff.Tensor // each inner step adds 1 to all that is in it
	loop  *outer.Loop
	steps int
}

// apart makes inner steps, with an exchange after each, until that fails.
func (p *trainee) apart(c context.Context, most int) (parted, error) {
	p.param = autodiff.New(make([]float32, arrays)).RequireGrad()
	var err error
	p.loop, err = outer.New(c, p.group(), []*autodiff.Tensor{p.param}, outer.Config{Every: 1, LR: 1, Momentum: optim.Zero})
	if err != nil {
		return parted{}, err
	}
	return p.repeat(most, func(*collective.Group) (right, err error) {
		v, err := autodiff.Values[float32](p.param)
		if err != nil {
			return err, nil
		}
		for i := range v {
			if math.Abs(float64(v[i])-float64(p.steps)) > 1e-2 {
				return fmt.Errorf("element %d is %v after %d steps", i, v[i], p.steps), nil
			}
			v[i]++
		}
		if err := autodiff.Assign([]*autodiff.Tensor{p.param}, []*autodiff.Tensor{autodiff.New(v)}); err != nil {
			return err, nil
		}
		p.steps++
		return nil, p.loop.Step(c)
	})
}

// made is what a trainee has at the end, and how many steps it has made.
type made struct {
	Steps int
	First float32
}

// regroup goes on with the group that is there now, and exchanges all that is left.
func (p *trainee) regroup(c context.Context, _ struct{}) (made, error) {
	if err := p.loop.Regroup(c, p.group()); err != nil {
		return made{}, err
	}
	if err := p.loop.Finish(c); err != nil {
		return made{}, err
	}
	v, err := autodiff.Values[float32](p.param)
	if err != nil {
		return made{}, err
	}
	return made{p.steps, v[0]}, p.loop.Close()
}

// cut makes steps of a model of which each member has a part, until that fails.
func (p *trainee) cut(c context.Context, most int) (parted, error) {
	model := nn.NewMLP(rand.New(rand.NewPCG(1, 1)), autodiff.Tanh, 64, 256, 256, 8)
	var layers [][]*autodiff.Tensor
	for k := 0; k < len(model); k += 2 { // between them are activations
		layers = append(layers, model[k].Params())
	}
	shards, err := shard.New(c, p.group(), layers, shard.Config{})
	if err != nil {
		return parted{}, err
	}
	opt, err := optim.NewGroups(shards.Named(optim.SGD{LR: 0.01}))
	if err != nil {
		return parted{}, err
	}
	return p.repeat(most, func(*collective.Group) (right, err error) {
		x := autodiff.Rand(4, 64)
		for k := range layers {
			h := x
			x = shards.Layer(c, k, func() *autodiff.Tensor { return model[2*k].Forward(h) })
			if 2*k+1 < len(model) {
				x = model[2*k+1].Forward(x)
			}
		}
		grads, err := shards.Backward(c, autodiff.Mean(autodiff.Mul(x, x)), 4)
		if err != nil {
			return nil, err
		}
		return opt.Step(grads), nil
	})
}

func TestAWorkerThatIsTerminatedWithinAnExchangeIsNamedAndTheOthersLoseNothing(t *testing.T) {
	t.Parallel()
	p := terminated(t, "apart", false)
	all := make([]made, len(p.procs))
	p.all(func(c context.Context, r int) error { return p.procs[r].Ask(c, "regroup", nil, &all[r]) })
	require.Equal(t, all[0].First, all[2].First)
	require.GreaterOrEqual(t, float64(all[0].First), float64(min(all[0].Steps, all[2].Steps))-1e-2)
	require.LessOrEqual(t, float64(all[0].First), float64(max(all[0].Steps, all[2].Steps))+1e-2)
	p.end()
}

func TestAWorkerThatIsTerminatedWithinAStepOfShardsIsNamed(t *testing.T) {
	t.Parallel()
	terminated(t, "cut", false).end()
}

func TestAWorkerThatClosesItsGroupWithinATrainingStepIsNamed(t *testing.T) {
	t.Parallel()
	for _, do := range []string{"apart", "cut"} {
		t.Run(do, func(t *testing.T) { terminated(t, do, true).end() })
	}
}

func TestAWorkerThatIsKilledWithinATrainingStepIsNamed(t *testing.T) {
	t.Parallel()
	for _, do := range []string{"apart", "cut"} {
		t.Run(do, func(t *testing.T) {
			p := partnered(t, 3)
			for r, end := range p.take(1, syscall.SIGKILL, do) {
				if p.procs[r] != nil {
					require.Equal(t, names(1)[0], end.Lost, "rank %d: %s", r, end.Err)
				}
			}
			p.change("without", nil, 0, 2)
			p.end()
		})
	}
}

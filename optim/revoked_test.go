package optim_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/optim"
)

// alone is the links of a container that has no peers.
type alone struct{ ctx.Links }

func (alone) Name(ctx.WorkerID) string { return "worker0" }

// A backward may have gone well here and then fail elsewhere: its gradients are taken back.
func TestAStepByGradientsThatWereTakenBackSaysThatTheBackwardFailedAndStepsNothing(t *testing.T) {
	ws := world(t, 2)
	outside := ws[0].Context(t.Context())
	for _, owner := range []string{"worker0", "worker1"} { // worker1 knows nothing of the pass: it is worker0 that says so
		param := makeParam.Remote(outside, owner, []float64{1})
		dist, err := optim.NewDistributed(outside, optim.SGD{LR: 1}, param)
		require.NoError(t, err)
		ct := ctx.NewContainer(ctx.Config{Links: alone{}})
		c, p, err := ct.Open(outside)
		require.NoError(t, err)
		require.NoError(t, ctx.Backward(c, autodiff.Sum(leaf(1, 2))))
		cause := errors.New("simulated")
		for id := p.ID(); id < p.ID()+8; id++ { // one of them is the backward
			f := ctx.Failure{Worker: "worker7", Pass: p.ID(), Backward: ctx.BackwardID(id)}
			require.NoError(t, ct.HandleAbort(c, f.Because(cause)))
		}
		for _, step := range []func() error{
			func() error { return dist.Step(c) }, func() error { return dist.StepScaled(c, 2) },
			func() error { _, err := dist.StepClipped(c, 1); return err }, func() error { _, err := dist.GradNorm(c); return err },
		} {
			err = step()
			var f *ctx.Failure
			require.ErrorAs(t, err, &f, owner)
			require.Equal(t, "worker7", f.Worker)
			require.ErrorIs(t, err, cause)
			require.ErrorContains(t, err, "revoked_test.go:")
		}
		p.Leave()
		ct.Close()
		x, err := param.ToHere(outside)
		require.NoError(t, err)
		require.Equal(t, 1.0, number(t, x))
		release(dist)
		param.Release()
	}
}

// As torch does: a part of a model that a pass did not use is no mistake.
func TestAnOwnerWithoutGradientsIsLeftAloneWhileOthersStep(t *testing.T) {
	ws := world(t, 2)
	c := ws[0].Context(t.Context())
	params := []optim.Param{makeParam.Remote(c, "worker0", []float64{1}), makeParam.Remote(c, "worker1", []float64{1})}
	dist, err := optim.NewDistributed(c, optim.SGD{LR: 1, Momentum: 0.5}, params...)
	require.NoError(t, err)
	step := func(used ...optim.Param) {
		require.NoError(t, ws[0].Pass(c, func(c context.Context) error {
			var losses []*autodiff.Tensor
			for _, p := range used {
				x, err := p.ToHere(c)
				require.NoError(t, err)
				losses = append(losses, autodiff.Sum(x))
			}
			require.NoError(t, ctx.Backward(c, losses...))
			return dist.Step(c)
		}))
	}
	want := func(at ...float64) {
		for i, p := range params {
			x, err := p.ToHere(c)
			require.NoError(t, err)
			require.Equal(t, at[i], number(t, x))
		}
	}
	step(params...)
	want(0, 0)
	step(params[0])
	want(-1.5, 0)
	step(params...)
	want(-3.25, -1.5) // the momentum of the second is as it was before
	release(dist)
	for _, p := range params {
		p.Release()
	}
}

package optim

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/rpc"
)

var makeParam = rpc.Define("param", func(_ context.Context, v []float64) (*autodiff.Tensor, error) {
	return autodiff.New(v).RequireGrad(), nil
})

// What an owner is asked may come from a program of another version, or from one that means harm.
func TestAnOwnerRefusesRequestsThatMakeNoSenseAndServesTheNextOne(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 2, append(Functions(), makeParam)...)
	c := ws[0].Context(t.Context())
	p := makeParam.Remote(c, "worker1", []float64{1, 2})
	here, err := rpc.NewRRef(c, autodiff.New([]float64{1}).RequireGrad())
	require.NoError(t, err)
	adam := Adam{}.Update()
	with := func(change func(u *kernels.Update)) []kernels.Update {
		u := adam
		change(&u)
		return []kernels.Update{u}
	}
	one, none := [][]Param{{p}}, [][]string{nil}
	for why, bad := range map[string]making{
		"no such rule as":      {with(func(u *kernels.Update) { u.Rule = kernels.UpdateRule(strings.Repeat("x", 1<<16)) }), one, none},
		"no such rule as \"\"": {[]kernels.Update{{}}, one, none},
		"learning rate NaN":    {with(func(u *kernels.Update) { u.LR = math.NaN() }), one, none},
		"beta2 1":              {with(func(u *kernels.Update) { u.Beta2 = 1 }), one, none},
		"scale 0 and step 0":   {with(func(u *kernels.Update) { u.Scale = 0 }), one, none},
		"scale 1 and step 7":   {with(func(u *kernels.Update) { u.Step = 7 }), one, none},
		"1 rules and 2 lists of names for 2 groups": {[]kernels.Update{adam}, [][]Param{{p}, {p}}, [][]string{nil, nil}},
		"1 rules and 1 lists of names for 0 groups": {[]kernels.Update{adam}, nil, none},
		"0 lists of names for 1 groups":             {[]kernels.Update{adam}, one, nil},
		"has 2 names for 1 parameters":              {[]kernels.Update{adam}, one, [][]string{{"a", "b"}}},
		"two parameters are called \"xxx":           {[]kernels.Update{adam, adam}, [][]Param{{p}, {p}}, [][]string{{strings.Repeat("x", 1<<16)}, {strings.Repeat("x", 1<<16)}}},
		"is given twice":                            {[]kernels.Update{adam, adam}, [][]Param{{p}, {p}}, [][]string{nil, nil}},
		"not the owner":                             {[]kernels.Update{adam}, [][]Param{{here}}, none},
	} {
		err := newLocal.Remote(c, "worker1", bad).Ready(c)
		require.ErrorContains(t, err, why)
		require.Less(t, len(err.Error()), 1000)
	}
	made := newLocal.Remote(c, "worker1", making{[]kernels.Update{adam}, one, none})
	require.NoError(t, made.Ready(c))
	defer made.Release()
	for why, bad := range map[string]pace{
		"0 learning rates for 1 groups": {nil, 1},
		"2 learning rates for 1 groups": {[]float64{1, 1}, 1},
		"multiplied by NaN":             {[]float64{1}, math.NaN()},
		"learning rate -1":              {[]float64{-1}, 1},
		"scaled by +Inf":                {[]float64{1}, math.Inf(1)},
	} {
		require.NoError(t, ws[0].Pass(c, func(c context.Context) error {
			x, err := p.ToHere(c)
			require.NoError(t, err)
			require.NoError(t, ctx.Backward(c, autodiff.Sum(x)))
			_, err = stepLocal.method.Call(ctx.NoGrad(c), made, bad)
			require.ErrorContains(t, err, why)
			return nil
		}))
	}
	x := autodiff.New([]float64{1, 2})
	for why, bad := range map[string][]kept{
		"it is of 0 parameters; there are 1":        nil,
		"it is of 2 parameters; there are 1":        {{}, {}},
		"has 0 tensors after 1 steps":               {{1, nil}},
		"has 2 tensors after 0 steps":               {{0, []*autodiff.Tensor{x, x}}},
		"has 2 tensors after -1 steps":              {{-1, []*autodiff.Tensor{x, x}}},
		"has 3 tensors after 1 steps; Adam keeps 2": {{1, []*autodiff.Tensor{x, x, x}}},
		"a nil tensor":                              {{1, []*autodiff.Tensor{x, nil}}},
		"it is float64(1)":                          {{1, []*autodiff.Tensor{x, autodiff.New([]float64{1})}}},
	} {
		_, err := restoreLocal.method.Call(c, made, bad)
		require.ErrorContains(t, err, why)
	}
	_, err = restoreLocal.method.Call(c, made, []kept{{5, []*autodiff.Tensor{x, x}}})
	require.NoError(t, err)
	got, err := keepLocal.method.Call(c, made, struct{}{})
	require.NoError(t, err)
	require.Equal(t, 5, got[0].Steps)
	p.Release()
	here.Release()
}

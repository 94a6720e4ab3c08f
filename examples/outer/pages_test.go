package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/outer"
	"github.com/weft-project/weft/rpc"
)

// What docs/internet.md has.

func trainApart(c context.Context, g *collective.Group, params []*autodiff.Tensor, step func() (rows int, err error)) error {
	loop, err := outer.New(c, g, params, outer.Config{
		Every: 100, Fragments: 4, // a quarter of the parameters every 25 steps
		Delay: 20, Mix: 0.5, // inner steps go on while it travels
		Wire: outer.Int4, FirstCalls: true, // half a byte an element; nobody waits for a slow worker
	})
	if err != nil {
		return err
	}
	defer loop.Close()
	for loop.Rounds() < 40 { // the same on all, whatever their speed
		rows, err := step() // forward, backward and optimizer, as alone
		if err != nil {
			return err
		}
		if err := loop.StepRows(c, rows); err != nil {
			return err
		}
	}
	return loop.Finish(c) // the same parameters on all
}

func stepOn(c context.Context, g *collective.Group, loop *outer.Loop, rows int) (*collective.Group, error) {
	err := loop.StepRows(c, rows)
	for errors.Is(err, collective.ErrLost) {
		if g, err = g.Without(c); err == nil { // all that are left call it
			err = loop.Regroup(c, g)
		}
	}
	return g, err
}

func takeIn(c context.Context, g *collective.Group, loop *outer.Loop, newcomer string) (*collective.Group, error) {
	if err := loop.Settle(c); err != nil { // what is under way
		return g, err
	}
	next, err := g.With(c, newcomer)
	if err != nil {
		return g, err // the group lives on
	}
	return next, loop.Regroup(c, next)
}

func comeIn(c context.Context, w *rpc.Worker, params []*autodiff.Tensor, cfg outer.Config) (*collective.Group, *outer.Loop, error) {
	g, err := collective.Enlist(c, w, "outer")
	if err != nil {
		return nil, nil, err
	}
	loop, err := outer.New(c, g, params, cfg) // with the group's parameters, momentum and position
	return g, loop, err
}

// stepInSite is a step of a site's workers together; the site's rank 0 has a loop with those of
// other sites, and what comes of an exchange goes to all of the site.
func stepInSite(
	c context.Context, site *collective.Group, r *parallel.Replicas, loop *outer.Loop, params []*autodiff.Tensor,
	step func(*parallel.Replicas) error,
) (*parallel.Replicas, error) {
	if err := step(r); err != nil { // Backward, and an optimizer's step
		return r, err
	}
	applied := false
	if loop != nil { // on rank 0
		before := loop.Rounds()
		if err := loop.Step(c); err != nil {
			return r, err
		}
		applied = loop.Rounds() > before
	}
	news, err := collective.Agree(c, site, applied)
	if err == nil && news[0] {
		r, err = parallel.Replicate(c, site, params, parallel.Config{}) // rank 0's values, on all
	}
	return r, err
}

// vector is a parameter, and count a step that adds 1 to it.
func vector() []*autodiff.Tensor {
	return []*autodiff.Tensor{autodiff.New([]float32{0}), autodiff.New([]float32{0}), autodiff.New([]float32{0}), autodiff.New([]float32{0})}
}

func count(params []*autodiff.Tensor) error {
	for _, p := range params {
		x, err := p.Item()
		if err != nil {
			return err
		}
		if err := autodiff.Assign([]*autodiff.Tensor{p}, []*autodiff.Tensor{autodiff.New([]float32{float32(x) + 1})}); err != nil {
			return err
		}
	}
	return nil
}

func TestWorkersTrainApartAsThePageSays(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 2)
	params := [2][]*autodiff.Tensor{vector(), vector()}
	for _, err := range rpctest.Attempt(2, func(r int) error {
		g, err := collective.Open(t.Context(), ws[r], "outer")
		if err != nil {
			return err
		}
		return errors.Join(trainApart(t.Context(), g, params[r], func() (int, error) { return 8, count(params[r]) }), g.Close())
	}) {
		require.NoError(t, err)
	}
	for i := range params[0] {
		x, err := params[0][i].Item()
		require.NoError(t, err)
		y, err := params[1][i].Item()
		require.NoError(t, err)
		require.Equal(t, x, y)
		require.Greater(t, x, 500.0)
	}
}

func TestTheLoopGoesOnWithoutWhoIsLostAndWithWhoComesAsThePageSays(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 4)
	cfg := outer.Config{Every: 2}
	var made, gone, in sync.WaitGroup
	made.Add(3)
	gone.Add(1)
	in.Add(2)
	c, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, err := range rpctest.Attempt(4, func(r int) error {
		params := vector()
		if r == 3 {
			in.Wait() // the others ask for it then
			g, loop, err := comeIn(c, ws[r], params, cfg)
			if err != nil {
				return err
			}
			return errors.Join(loop.Finish(c), loop.Close(), g.Close())
		}
		g, err := collective.Open(c, ws[r], "outer", "worker0", "worker1", "worker2")
		if err != nil {
			return err
		}
		loop, err := outer.New(c, g, params, cfg)
		made.Done()
		if err != nil {
			return err
		}
		made.Wait() // who leaves earlier fails it on those that have not heard all
		if r == 2 {
			defer gone.Done()
			return errors.Join(loop.Close(), ws[r].Close())
		}
		gone.Wait()
		for range 3 {
			err = count(params)
			if err == nil {
				g, err = stepOn(c, g, loop, 1)
			}
			if err != nil {
				return err
			}
		}
		in.Done()
		if g, err = takeIn(c, g, loop, "worker3"); err != nil {
			return err
		}
		if g.Size() != 3 || loop.Rounds() == 0 {
			return errors.New("it has not gone on")
		}
		return errors.Join(loop.Finish(c), loop.Close(), g.Close())
	}) {
		require.NoError(t, err)
	}
}

func TestTwoSitesOfTwoTrainTogetherAsThePageSays(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 4)
	params := [4][]*autodiff.Tensor{}
	for _, err := range rpctest.Attempt(4, func(r int) error { params[r] = vector(); return inSites(t.Context(), ws[r], r, params[r]) }) {
		require.NoError(t, err)
	}
	for r := range params {
		for i := range params[r] {
			x, err := params[r][i].Item()
			require.NoError(t, err)
			first, err := params[0][i].Item()
			require.NoError(t, err)
			require.Equal(t, first, x, "worker %d", r)
			require.Less(t, x, -10.0)
		}
	}
}

// inSites is a worker of one of two sites, in which losses are sums of parameters, and more so for
// higher ranks.
func inSites(c context.Context, w *rpc.Worker, rank int, params []*autodiff.Tensor) (err error) {
	names := [][]string{{"worker0", "worker1"}, {"worker2", "worker3"}}[rank/2]
	site, err := collective.Open(c, w, names[0]+"'s", names...)
	if err != nil {
		return err
	}
	for _, p := range params {
		p.RequireGrad()
	}
	var loop *outer.Loop
	if site.Rank() == 0 {
		across, err := collective.Open(c, w, "outer", "worker0", "worker2")
		if err == nil {
			loop, err = outer.New(c, across, params, outer.Config{Every: 4, Delay: 1})
		}
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, loop.Close(), across.Close()) }()
	}
	r, err := parallel.Replicate(c, site, params, parallel.Config{})
	if err != nil {
		return err
	}
	opt, err := optim.New(optim.SGD{LR: 0.5}, params...)
	if err != nil {
		return err
	}
	for range 21 { // five exchanges, each of which is there a step later
		if r, err = stepInSite(c, site, r, loop, params, func(r *parallel.Replicas) error {
			loss := autodiff.Scale(autodiff.Sum(autodiff.Concat(0, params...)), float64(1+rank))
			grads, err := r.Backward(c, loss, 1)
			if err != nil {
				return err
			}
			return opt.Step(grads)
		}); err != nil {
			return err
		}
	}
	return site.Close()
}

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

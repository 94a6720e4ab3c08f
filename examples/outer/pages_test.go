package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/secret/secrettest"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/outer"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
)

// What docs/internet.md has.

func trainApart(c context.Context, m *elastic.Membership, params []*autodiff.Tensor, step func() (rows int, err error)) error {
	return outer.Each(c, m, params, outer.Config{
		Every: 100, Fragments: 4, // a quarter of the parameters every 25 steps
		Delay: 20, Mix: 0.5, // inner steps go on while it travels
		Wire: outer.Int4, FirstCalls: true, // half a byte an element; nobody waits for a slow worker
	}, func(c context.Context, _ *elastic.Epoch, loop *outer.Loop) error {
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
	})
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

func listenAt(host string, port int) (string, error) { // outer.Config.Listen of a node's workers
	local, err := strconv.Atoi(os.Getenv("LOCAL_RANK"))
	return net.JoinHostPort(host, strconv.Itoa(port+local)), err
}

func TestWorkersOfANodeListenAtPortsOfTheirOwn(t *testing.T) {
	for local, at := range map[string]string{"0": "10.0.0.7:4000", "3": "10.0.0.7:4003"} {
		t.Setenv("LOCAL_RANK", local)
		got, err := listenAt("10.0.0.7", 4000)
		require.NoError(t, err)
		require.Equal(t, at, got)
	}
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
	server, err := store.Serve(store.ServerConfig{Addr: "127.0.0.1:0"})
	require.NoError(t, err)
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Addr())
	require.NoError(t, err)
	params := [2][]*autodiff.Tensor{vector(), vector()}
	var ms [2]*elastic.Membership
	for r := range ms {
		for k, v := range map[string]string{
			"RANK": fmt.Sprint(r), "WORLD_SIZE": "2", "LOCAL_RANK": fmt.Sprint(r), "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1",
			"TORCHELASTIC_RESTART_COUNT": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, elastic.TokenVariable: secrettest.Token("job"),
		} {
			t.Setenv(k, v)
		}
		ms[r], err = elastic.Join(t.Context())
		require.NoError(t, err)
	}
	for _, err := range rpctest.Attempt(2, func(r int) error {
		return trainApart(t.Context(), ms[r], params[r], func() (int, error) { return 8, count(params[r]) })
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

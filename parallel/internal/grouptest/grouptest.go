package grouptest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/secret/secrettest"
	"github.com/weft-project/weft/rpc"
)

// World is the members of a group.
type World struct {
	T  *testing.T
	Ws []*rpc.Worker
	Gs []*collective.Group
}

// New is a group of so many, over a network in memory.
func New(t *testing.T, size int) *World {
	t.Helper()
	return of(t, rpctest.World(t, rpctest.Net(), size))
}

// OnLane is a group of so many whose arrays travel on a lane, on this host.
func OnLane(t *testing.T, size int, lane string) *World {
	t.Helper()
	w := of(t, rpctest.WorldWith(t, rpctest.Net(), size, func(_ int, cfg *rpc.Config) {
		cfg.Network, cfg.Listen, cfg.Lanes, cfg.Token = nil, "", []string{lane}, secrettest.Token("job")
	}))
	if size > 1 {
		require.Equal(t, lane, w.Gs[0].Members()[1].Lane)
	}
	return w
}

func of(t *testing.T, ws []*rpc.Worker) *World {
	t.Helper()
	w := &World{t, ws, make([]*collective.Group, len(ws))}
	w.Each(func(r int) (err error) {
		w.Gs[r], err = collective.Open(t.Context(), ws[r], "all")
		return err
	})
	t.Cleanup(func() {
		for _, g := range w.Gs {
			require.NoError(t, g.Close())
		}
	})
	return w
}

// Attempt does something on all ranks at once.
func (w *World) Attempt(fn func(r int) error) []error { return rpctest.Attempt(len(w.Ws), fn) }

// Each is Attempt of what is to go well.
func (w *World) Each(fn func(r int) error) {
	w.T.Helper()
	for r, err := range w.Attempt(fn) {
		require.NoError(w.T, err, "rank %d", r)
	}
}

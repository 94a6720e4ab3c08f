package main

import (
	"context"
	"sync"
	"testing"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/rpc"
)

// exchange is what docs/groups.md says of messages.
func exchange(c context.Context, g *collective.Group, x, y []float32) (z []float32, err error) {
	switch g.Rank() {
	case 0:
		err = collective.Send(c, g, 2, 7, x) // to rank 2, with tag 7
	case 1:
		err = collective.Send(c, g, 2, 8, x[:2])
	case 2:
		if z, _, err = collective.RecvNew[float32](c, g, 1, 8); err == nil { // of whatever length
			_, err = collective.Recv(c, g, collective.Anyone, 7, y) // into y, of the same length
		}
	}
	return z, err
}

func TestThePageOfGroupsSendsAndReceivesAsItSays(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 3)
	var all sync.WaitGroup
	for r, w := range ws {
		all.Go(func() { sendAndReceive(t, r, w) })
	}
	all.Wait()
}

func sendAndReceive(t *testing.T, r int, w *rpc.Worker) {
	g, err := collective.Open(t.Context(), w, "messages")
	if err != nil {
		t.Error(err)
		return
	}
	x, y := []float32{1, 2, 3}, make([]float32, 3)
	z, err := exchange(t.Context(), g, x, y)
	if r == 2 && (err != nil || y[2] != 3 || len(z) != 2) {
		t.Errorf("%v, %v, %v", y, z, err)
	}
	if err == nil {
		err = g.Barrier(t.Context())
	}
	if err != nil || g.Close() != nil {
		t.Error(err)
	}
}

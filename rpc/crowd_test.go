package rpc

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/rpc/internal/roster"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/simnet"
)

// crowdedNet refuses dials as a peer does to which too many dial, and hears of members.
type crowdedNet struct {
	transport.Network
	left *atomic.Int32 // how many more are refused
	met  *atomic.Int32
}

func (n crowdedNet) Dial(c context.Context, addr string) (transport.Link, error) {
	if n.left.Add(-1) >= 0 {
		return nil, &transport.Error{Op: "dial", Peer: addr, Err: transport.ErrBusy}
	}
	return n.Network.Dial(c, addr)
}

func (n crowdedNet) Acquaint(string) { n.met.Add(1) }

// inCrowds makes a world in which the workers' dials are refused when the test says so.
func inCrowds(t *testing.T, n int) ([]*Worker, *crowdedNet) {
	t.Helper()
	crowd := &crowdedNet{left: &atomic.Int32{}, met: &atomic.Int32{}}
	ws, _ := simWith(t, n, simnet.Config{MinDelay: time.Millisecond}, func(_ int, cfg *Config) {
		cfg.Network = crowdedNet{cfg.Network, crowd.left, crowd.met}
		cfg.Functions = []Function{double}
	})
	return ws, crowd
}

func TestACrowdAtAWorkerIsNoSignThatItIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, crowd := inCrowds(t, 16)
		require.EqualValues(t, 16*15, crowd.met.Load(), "the network is told of members")
		to := -1
		for rank, p := range ws[1].members.All() {
			if rank != 1 && p.Link == nil {
				to = rank
			}
		}
		require.Positive(t, to)
		for range 5 {
			crowd.left.Store(1)
			_, err := double.Call(ws[1].Context(t.Context()), fmt.Sprint("worker", to), 1)
			require.ErrorIs(t, err, ErrBusy)
			require.ErrorIs(t, err, transport.ErrBusy)
			require.NotErrorIs(t, err, ErrPeerLost)
		}
		got, err := double.Call(ws[1].Context(t.Context()), fmt.Sprint("worker", to), 1)
		require.NoError(t, err)
		require.Equal(t, 2, got)
	})
}

func TestWhoAnswersThatItIsBusyHoldsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, crowd := inCrowds(t, 2)
		crowd.left.Store(1)
		require.True(t, ws[0].members.Registry.Answers(t.Context(), "nowhere:1"))
	})
}

func TestANewcomerWaitsUntilTheCrowdAtAMemberIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, crowd := inCrowds(t, 2)
		crowd.left.Store(5)
		v, err := ws[1].members.Vouch(t.Context(), []*roster.Member{&ws[0].members.Me})
		require.NoError(t, err)
		v.Close()
	})
}

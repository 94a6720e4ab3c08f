package measure

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/bench/gpu/internal/places"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/kernels/gpu"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// splitOnOneGPU trains the small network split between two workers that are two processes on one
// GPU, as far as that can tell, with some lanes.
func splitOnOneGPU(t *testing.T, lanes []string) trained {
	server, err := store.Serve(store.ServerConfig{})
	require.NoError(t, err)
	b := &bench{at: places.Interpreter, rounds: 2}
	b.sizes.small = mlpSize{24, []int{4, 4, 352, 4}} // what goes between them is larger than what travels in its message
	host, token, ended := new(ptx.Host), transport.NewToken(), make(chan error, 1)
	var out trained
	worker := func(rank int) error {
		d, err := gpu.On(ptxtest.New(ptx.Config{Host: host, UUID: "GPU-1"}), device.CUDA(rank))
		if err != nil {
			return err
		}
		c, k := context.Background(), b.cuts()["mlp-small"]()
		k.whole = k.whole.on(d)
		s, err := store.Dial(c, store.ClientConfig{Addr: server.Addr()})
		if err != nil {
			return err
		}
		w, parts, err := k.join(c, d, rpc.Config{Store: s, Rank: rank, WorldSize: 2, Token: token, Lanes: lanes}, fmt.Sprintf("worker%d", 1-rank), device.CUDA(1-rank))
		if err != nil {
			return err
		}
		if rank == 0 {
			if out, err = b.lead(c, w, k, parts); err != nil {
				return err
			}
		}
		for _, end := range []func() error{func() error { return w.Leave(c) }, s.Close, d.Close} {
			if err := end(); err != nil {
				return err
			}
		}
		return nil
	}
	go func() { ended <- worker(1) }()
	require.NoError(t, worker(0))
	require.NoError(t, <-ended)
	require.NoError(t, server.Close())
	return out
}

func TestASplitKnowsThatLaneCUDAIsTurnedOff(t *testing.T) {
	require.NoError(t, splitOnOneGPU(t, nil).stayed())
	off := splitOnOneGPU(t, []string{transport.LaneLocal, transport.LaneQUIC})
	require.ErrorContains(t, off.stayed(), "did not go by lane cuda: there is no such lane; bytes by lane: map[bulk:0 local:")
	require.NotEmpty(t, off.Losses, "which nothing else would tell")

	for _, c := range []struct {
		lane transport.LaneState
		said string
	}{
		{transport.LaneState{Name: "cuda", Why: "the peer uses other accelerators"}, "by lane cuda: the peer uses other accelerators"},
		{transport.LaneState{Name: "cuda", Sent: 5}, "by lane cuda: it is up, and 5 bytes were sent and 0 received by it"},
	} {
		require.ErrorContains(t, trained{Lanes: []transport.LaneState{c.lane}}.stayed(), c.said)
	}
}

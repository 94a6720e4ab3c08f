package disttest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// TestARandomWorkerKilledAtARandomMessageLeavesNothingOnTheOthers runs every random program twice:
// undisturbed, to count its messages, and with a worker killed at one of them.
func TestARandomWorkerKilledAtARandomMessageLeavesNothingOnTheOthers(t *testing.T) {
	var failed, survived int
	cases := soak.Cases(60)
	for i := range cases {
		seed := uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			k := newCase(t, seed, ctx.Mode(seed%4/3))
			messages := k.count(t, func(t *testing.T, w *world) {
				w.pass(t, k.root, func(c context.Context) { require.NoError(t, k.pass(c)) })
			})
			if k.kill(t, k.r.IntN(k.workers), 1+k.r.IntN(max(1, messages))) != nil {
				failed++
			} else {
				survived++
			}
		})
	}
	t.Logf("%d passes failed, %d did not need who was killed", failed, survived)
	require.Greater(t, failed, cases/4)
}

// counted runs something with the case's workers, calls at for every message, and gives how many
// there were.
func (k *randomCase) counted(t *testing.T, at func(n int64), run func(t *testing.T, w *world)) (messages int) {
	const uncounted = 1 << 40 // joining and leaving
	var n atomic.Int64
	n.Store(uncounted)
	cfg := k.net
	cfg.Drop = func(string, string, *transport.Message) bool { at(n.Add(1)); return false }
	bubble(t, k.workers, cfg, func(t *testing.T, w *world) {
		n.Store(0)
		run(t, w)
		messages = int(n.Swap(uncounted))
	}, k.eval)
	return messages
}

// count counts the messages of what is run.
func (k *randomCase) count(t *testing.T, run func(t *testing.T, w *world)) int {
	return k.counted(t, func(int64) {}, run)
}

// kill runs the pass, kills a worker at message number at, and checks that the others hear of it
// and have nothing left.
func (k *randomCase) kill(t *testing.T, victim, at int) (err error) {
	var now chan struct{}
	k.counted(t, func(n int64) {
		if n == int64(at) {
			close(now)
		}
	}, func(t *testing.T, w *world) {
		now = make(chan struct{})
		before := device.Host().Stats().Live
		over := make(chan struct{})
		go func() {
			select {
			case <-now:
				w.net.Kill(rpctest.Host(victim))
			case <-over:
			}
		}()
		err = w.ws[k.root].Pass(t.Context(), k.pass)
		close(over)
		synctest.Wait()
		if err != nil && victim != k.root {
			require.ErrorIs(t, err, rpc.ErrPeerLost)
			require.ErrorContains(t, err, name(victim))
		}
		time.Sleep(5 * time.Second) // of the bubble: the others see the silence
		for i, worker := range w.ws {
			if i == victim {
				require.NoError(t, worker.Close())
				continue
			}
			require.NoError(t, worker.Settle(t.Context()), worker.Name())
			require.Empty(t, worker.Passes(), worker.Name())
			require.Zero(t, worker.Owned(), worker.Name())
		}
		require.Equal(t, before, device.Host().Stats().Live)
	})
	return err
}

package mux

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

const queuedMost = 1 << 20

func TestWhatAPeerSendsAndNobodyReceivesIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, peer := hostile(t, MemConfig{Limits: wire.Limits{MaxQueued: queuedMost}})
		write(t, peer, chunk{kind: chunkMessage, number: 1}, []byte("small"))
		small, err := l.Accept(t.Context())
		require.NoError(t, err)
		for i := range uint64(5000) { // more than may be open at a time
			for range 3 {
				write(t, peer, chunk{kind: chunkMessage, flags: flagMore, number: (i+1)<<1 | 1}, make([]byte, pieceMax))
			}
			if i%100 == 0 {
				synctest.Wait() // all was read: who waits for room on the conduit has it
				require.NoError(t, l.Err())
				require.LessOrEqual(t, l.queued.Load(), int64(queuedMost))
				l.mu.Lock()
				require.Len(t, l.arrived, len(l.streams)-1, "what was reset need not be accepted")
				l.mu.Unlock()
			}
		}
		require.NoError(t, small.(*stream).maySend(), "it is the largest that is reset")
		for range queuedMost / (4 * pieceMax) {
			s, err := l.Accept(t.Context())
			require.NoError(t, err)
			s.Reset(nil)
		}
		small.Reset(nil)
	})
}

func TestAStreamThatIsResetForItsSizeSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, peer := hostile(t, MemConfig{Limits: wire.Limits{MaxQueued: queuedMost}})
		for range 2 {
			write(t, peer, chunk{kind: chunkMessage, number: 1}, make([]byte, pieceMax))
		}
		s, err := l.Accept(t.Context())
		require.NoError(t, err)
		const others = queuedMost / (pieceMax / 2)
		for i := range uint64(others) {
			write(t, peer, chunk{kind: chunkMessage, number: (i+1)<<1 | 1}, make([]byte, pieceMax/2))
		}
		synctest.Wait()
		_, err = s.Recv(t.Context(), nil)
		require.ErrorIs(t, err, wire.ErrReset)
		require.ErrorContains(t, err, "MaxQueued")
		require.ErrorIs(t, context.Cause(s.Context()), wire.ErrReset)
		l.mu.Lock()
		require.Greater(t, len(l.arrived), others-6, "the others are as they were")
		l.mu.Unlock()
	})
}

// hungUp is a conduit on which writes fail as where the peer has closed it, and reads hear nothing
// of it.
type hungUp struct{ lane.Conduit }

func (hungUp) Write([]byte) (int, error)    { return 0, syscall.EPIPE }
func (hungUp) TryWrite([]byte) (int, error) { return 0, syscall.EPIPE }

func TestASendOnALinkThatHungUpEndsWithItsContextAndTheLinkSoonAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := hostile(t, MemConfig{})
		l.out.conduit = hungUp{l.Conduit}
		s, err := l.Open(t.Context())
		require.NoError(t, err)
		c, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		require.NoError(t, s.Send(c, &wire.Message{Header: []byte("x")}), "it finds out")
		require.Error(t, s.Send(c, &wire.Message{Header: []byte("x")}))
		require.Equal(t, time.Second, time.Since(start))
		<-l.Done()
		require.Equal(t, lastWords, time.Since(start))
		require.Error(t, s.CloseSend())
	})
}

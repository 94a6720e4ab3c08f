//go:build linux

package shm

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/meet"
)

func TestSilentConnectionsToTheLocalSocketKeepNobodyOffTheLane(t *testing.T) {
	leak.Check(t)
	maker := New(false)
	offer, err := maker.Offer()
	require.NoError(t, err)
	s, err := maker.Serve(nil)
	require.NoError(t, err)
	defer s.Close()
	var silent []net.Conn
	defer func() {
		for _, conn := range silent {
			_ = conn.Close()
		}
	}()
	for range 5 {
		answer, wait, err := s.Expect(lane.Peer{Secret: [32]byte{1}}, offer)
		require.NoError(t, err)
		for range meet.MaxGreeting {
			conn, err := net.Dial("unix", string(answer[meet.KeySize:]))
			require.NoError(t, err)
			silent = append(silent, conn)
		}
		// The flood is of this process, too: it may be refused until what was evicted is gone.
		var here *lane.End
		require.Eventually(t, func() bool {
			here, err = maker.Join(t.Context(), lane.Peer{Secret: [32]byte{1}}, answer)
			return err == nil
		}, time.Minute, time.Millisecond)
		there, err := wait(t.Context())
		require.NoError(t, err)
		here.Drop()
		there.Drop()
	}
	for _, conn := range silent[:meet.MaxGreeting] { // the oldest had to go, long before their time was up
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err := conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	}
}

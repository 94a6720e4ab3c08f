//go:build linux

package transport

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
)

func TestSilentConnectionsToTheLocalSocketKeepNobodyOffTheLane(t *testing.T) {
	leak.Check(t)
	maker := newLocalLane(false)
	offer, err := maker.offer()
	require.NoError(t, err)
	s, err := maker.serve(nil)
	require.NoError(t, err)
	defer s.close()
	var silent []net.Conn
	defer func() {
		for _, conn := range silent {
			_ = conn.Close()
		}
	}()
	for round := range 5 {
		answer, wait, err := s.expect(laneWith{secret: [32]byte{1}}, offer)
		require.NoError(t, err)
		for range maxGreeting {
			conn, err := net.Dial("unix", string(answer[meetKey:]))
			require.NoError(t, err)
			silent = append(silent, conn)
		}
		here, err := maker.join(t.Context(), laneWith{secret: [32]byte{1}}, answer)
		require.NoError(t, err, "dial %d", round)
		there, err := wait(t.Context())
		require.NoError(t, err)
		here.drop()
		there.drop()
	}
	for _, conn := range silent[:maxGreeting] { // the oldest had to go, long before their time was up
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err := conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	}
}

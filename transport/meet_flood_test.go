//go:build linux

package transport

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/weft-project/weft/transport/internal/transporttest"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/leak"
)

func TestSilentConnectionsToTheLocalSocketKeepNobodyOffTheLane(t *testing.T) {
	leak.Check(t)
	lane := newLocalLane(false)
	offer, err := lane.offer()
	require.NoError(t, err)
	s, err := lane.serve(nil)
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
		here, err := lane.join(t.Context(), laneWith{secret: [32]byte{1}}, answer)
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

func TestAnotherUserOfTheHostIsNotLetIntoTheLocalSocket(t *testing.T) {
	leak.Check(t)
	m, err := newMeeting(maxRoles)
	require.NoError(t, err)
	defer m.close()
	book, log := transporttest.NewLogBook()
	m.tellTo(newRefusals(log))
	stranger := proctest.StartStranger(t, nil)
	for range 3 {
		var said string
		require.NoError(t, stranger.Ask(t.Context(), "knock", m.name, &said))
		require.Equal(t, io.EOF.Error(), said)
	}
	require.Len(t, book.Lines(), 1)
	require.Contains(t, book.Lines()[0], fmt.Sprintf("user %d", proctest.Nobody))
	m.mu.Lock()
	defer m.mu.Unlock()
	require.Empty(t, m.strangers.under)
}

//go:build linux

package meet

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/transporttest"
)

// TestMain lets the test binary play a process of another user.
func TestMain(m *testing.M) {
	proctest.Main(m, map[string]proctest.Command{"knock": proctest.Do(knock)})
}

// knock connects to a unix socket and says what comes of it.
func knock(c context.Context, addr string) (string, error) {
	conn, err := new(net.Dialer).DialContext(c, "unix", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // it was only looked
	_, err = conn.Read(make([]byte, 1))
	return err.Error(), nil
}

func TestAnotherUserOfTheHostIsNotLetIntoTheLocalSocket(t *testing.T) {
	leak.Check(t)
	m, err := NewServer(MaxRoles)
	require.NoError(t, err)
	defer m.Close()
	book, log := transporttest.NewLogBook()
	m.TellTo(identity.NewRefusals(log))
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
	require.Empty(t, m.strangers.Under)
}

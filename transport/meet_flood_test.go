//go:build linux

package transport

import (
	"fmt"
	"io"
	"testing"

	"github.com/weft-project/weft/transport/internal/transporttest"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/leak"
)

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

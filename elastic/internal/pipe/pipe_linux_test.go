package pipe

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAWorkerThatDoesNotReadItsPlacesNeverKeepsItsAgentWaiting(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	said, line := 0, []byte(strings.Repeat("x", 500)+"\n")
	for range 1000 { // many times what a pipe holds
		n := Offer(w, line)
		require.True(t, n == 0 || n == len(line), "a line is whole, or not there")
		said += n
	}
	require.Equal(t, said, Unread(w))
	require.NoError(t, r.Close())
	require.Zero(t, Offer(w, line))
	require.NoError(t, w.Close())
	require.Zero(t, Offer(w, line))
	require.Zero(t, Offer(nil, line))
}

func TestWhatIsUnreadInAPipeIsCounted(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	require.Zero(t, Unread(w))
	_, err = w.WriteString("12345")
	require.NoError(t, err)
	require.Equal(t, 5, Unread(w))
	_, err = r.Read(make([]byte, 5))
	require.NoError(t, err)
	require.Zero(t, Unread(w))
	require.NoError(t, w.Close())
	require.Zero(t, Unread(w))
}

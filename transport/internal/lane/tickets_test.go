package lane

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTicketsThatWereRefusedAreRememberedWithinBounds(t *testing.T) {
	r := NewRefusedTickets()
	for i := range uint64(10_000) {
		r.Add(i)
		r.Add(i)
	}
	require.Len(t, r.has, refusedCount)
	require.True(t, r.Cut(9_999))
	require.False(t, r.Cut(9_999))
	require.False(t, r.Cut(0))
}

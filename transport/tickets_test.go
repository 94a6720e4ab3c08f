package transport

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTicketsThatWereRefusedAreRememberedWithinBounds(t *testing.T) {
	r := newRefusedTickets()
	for i := range uint64(10_000) {
		r.add(i)
		r.add(i)
	}
	require.Len(t, r.has, refusedCount)
	require.True(t, r.cut(9_999))
	require.False(t, r.cut(9_999))
	require.False(t, r.cut(0))
}

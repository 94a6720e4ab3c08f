package peers_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/parallel/internal/peers"
)

// sumOf adds up headers, as ranks do.
func sumOf(headers ...[]float32) []float32 {
	sum := make([]float32, len(headers[0]))
	for _, h := range headers {
		for i, v := range h {
			sum[i] += v
		}
	}
	return sum
}

func TestTheSumOfHeadersSaysWhatAllRanksHaveTold(t *testing.T) {
	one := peers.Header(3, nil, []float32{1, 0}, []float32{2})
	two := peers.Header(4, nil, []float32{1, 1}, []float32{0})
	rows, failed, lists := peers.ReadHeader(sumOf(one, two))
	require.Equal(t, 7.0, rows)
	require.False(t, failed)
	require.Equal(t, []float32{2, 1, 2}, lists)
	require.Len(t, one, peers.HeaderLen+3)

	bad := peers.Header(5, errors.New("no"), []float32{1, 0}, []float32{0})
	rows, failed, _ = peers.ReadHeader(sumOf(one, bad))
	require.True(t, failed)
	require.Equal(t, 3.0, rows, "rows of a rank that has failed do not count")
}

package transport

import (
	"crypto/hmac"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProofsDifferByAllThatTheyProve(t *testing.T) {
	a, b := [32]byte{1}, [32]byte{2}
	proof := prove(&a, "dialler", 0, []byte("x"))
	require.True(t, hmac.Equal(proof, prove(&a, "dialler", 0, []byte("x"))))
	for _, other := range [][]byte{prove(&b, "dialler", 0, []byte("x")), prove(&a, "listener", 0, []byte("x")), prove(&a, "dialler", 1, []byte("x")), prove(&a, "dialler", 0, []byte("y"))} {
		require.NotEqual(t, proof, other)
	}
}

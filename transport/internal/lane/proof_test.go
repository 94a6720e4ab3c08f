package lane

import (
	"crypto/hmac"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProofsDifferByAllThatTheyProve(t *testing.T) {
	a, b := [32]byte{1}, [32]byte{2}
	proof := Prove(&a, "dialler", 0, []byte("x"))
	require.True(t, hmac.Equal(proof, Prove(&a, "dialler", 0, []byte("x"))))
	for _, other := range [][]byte{Prove(&b, "dialler", 0, []byte("x")), Prove(&a, "listener", 0, []byte("x")), Prove(&a, "dialler", 1, []byte("x")), Prove(&a, "dialler", 0, []byte("y"))} {
		require.NotEqual(t, proof, other)
	}
}

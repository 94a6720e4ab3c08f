//go:build linux

package meet

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/transport/internal/transporttest"
)

func TestAProofServesOneEndOfOneConnection(t *testing.T) {
	secret, key := [32]byte{7}, make([]byte, KeySize)
	seen := map[string]bool{}
	for _, end := range []string{"dialler", "listener"} {
		for role := range byte(2) {
			seen[string(proofOf(secret, end, key, role))] = true
		}
	}
	require.Len(t, seen, 4)
	a, b := transporttest.UnixPair(t)
	_, err := a.Write(make([]byte, 32)) // what is no proof
	require.NoError(t, err)
	require.ErrorIs(t, greetServer(b, secret, key, 0), errGreeting)
}

func FuzzALocalHello(f *testing.F) {
	secret := [32]byte{9}
	key := make([]byte, KeySize)
	f.Add(append(append(append([]byte{}, key...), 1), proofOf(secret, "dialler", key, 1)...))
	f.Add([]byte("hello"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, c := transporttest.UnixPair(t)
		_, err := a.Write(binary.LittleEndian.AppendUint32(b, 0))
		require.NoError(t, err)
		require.NoError(t, a.CloseWrite())
		_, role, err := greetDialler(c, func([KeySize]byte) ([32]byte, bool) { return secret, true })
		if err == nil {
			require.LessOrEqual(t, role, byte(1))
		}
	})
}

package store

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnAddressThatIsTakenIsRefusedByNameAndItsServerGoesOn(t *testing.T) {
	s, err := Serve(ServerConfig{})
	require.NoError(t, err)
	defer s.Close()
	_, err = Serve(ServerConfig{Addr: s.Addr()})
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.ErrorContains(t, err, s.Addr())
	cl, err := Dial(t.Context(), ClientConfig{Addr: s.Addr()})
	require.NoError(t, err)
	defer cl.Close()
	require.NoError(t, cl.Set(t.Context(), "k", nil))
}

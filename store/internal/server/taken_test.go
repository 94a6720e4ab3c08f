package server

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/store/internal/client"
)

func TestAnAddressThatIsTakenIsRefusedByNameAndItsServerGoesOn(t *testing.T) {
	s, err := Serve(Config{})
	require.NoError(t, err)
	defer s.Close()
	_, err = Serve(Config{Addr: s.Addr()})
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.ErrorContains(t, err, s.Addr())
	cl, err := client.Dial(t.Context(), client.Config{Addr: s.Addr()})
	require.NoError(t, err)
	defer cl.Close()
	require.NoError(t, cl.Set(t.Context(), "k", nil))
}

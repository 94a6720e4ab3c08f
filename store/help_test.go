package store

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func served(t *testing.T, cfg ServerConfig) *Server {
	t.Helper()
	s, err := Serve(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func joined(t *testing.T, s *Server) *Client {
	t.Helper()
	cl, err := Dial(t.Context(), ClientConfig{Addr: s.Addr()})
	require.NoError(t, err)
	t.Cleanup(func() { cl.Close() })
	return cl
}

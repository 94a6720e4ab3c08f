package transporttest

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// UnixPair gives two ends of a unix socket, which are closed when the test ends.
func UnixPair(t testing.TB) (a, b *net.UnixConn) {
	dir, err := os.MkdirTemp("", "weft") // t's own is too long a name for a socket on some systems
	require.NoError(t, err)
	defer os.RemoveAll(dir) //nolint:errcheck // the connection needs no name any more
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	require.NoError(t, err)
	defer l.Close() //nolint:errcheck // it has no more to do
	dialled, err := net.Dial("unix", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = dialled.Close() })
	accepted, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = accepted.Close() })
	return dialled.(*net.UnixConn), accepted.(*net.UnixConn)
}

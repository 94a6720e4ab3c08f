package who

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
)

func TestMain(m *testing.M) {
	proctest.Main(m, map[string]proctest.Command{
		"connect": proctest.Do(func(c context.Context, at [2]string) (string, error) { // and leaves the connection open
			nc, err := new(net.Dialer).DialContext(c, at[0], at[1])
			if err != nil {
				return "", err
			}
			context.AfterFunc(c, func() { _ = nc.Close() })
			return nc.LocalAddr().String(), nil
		}),
		"sandboxed": proctest.Do(sandboxed),
	})
}

// pair is both ends of a TCP connection.
func pair(t *testing.T, address string) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	host := "127.0.0.1"
	if ip := l.Addr().(*net.TCPAddr).IP; ip.IsLoopback() {
		host = ip.String()
	}
	client, err = net.Dial("tcp", net.JoinHostPort(host, port))
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	server, err = l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	return client, server
}

func TestTheKernelSaysWhoseAConnectionIsAtBothEnds(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::]:0", "[::1]:0", "127.9.9.9:0"} {
		client, server := pair(t, address)
		for _, nc := range []net.Conn{client, server} {
			uid, err := UID(nc)
			require.NoError(t, err, address)
			require.Equal(t, os.Geteuid(), uid)
		}
	}
	near, _ := net.Pipe()
	uid, err := UID(near)
	require.NoError(t, err)
	require.Equal(t, os.Geteuid(), uid)
}

func TestAnotherUserIsToldFromUs(t *testing.T) {
	stranger := proctest.StartStranger(t, nil)
	path := filepath.Join(public(t), "socket")
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": path} {
		l, err := net.Listen(network, address)
		require.NoError(t, err)
		defer l.Close()
		if network == "unix" {
			require.NoError(t, os.Chmod(path, 0o777)) //nolint:gosec // the other user has to connect
		}
		require.NoError(t, stranger.Ask(t.Context(), "connect", [2]string{network, l.Addr().String()}, nil))
		nc, err := l.Accept()
		require.NoError(t, err)
		defer nc.Close()
		uid, err := UID(nc)
		require.NoError(t, err)
		require.Equal(t, proctest.Nobody, uid)
		require.False(t, Trusted(uid))
	}
}

// public is a folder that another user may enter.
func public(t *testing.T) string {
	dir, err := os.MkdirTemp("", "weft-who-*")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755)) //nolint:gosec // that is what it is for
	return dir
}

// A socket without a process shows root as its owner.
func TestAConnectionThatNobodyHasIsNotRoots(t *testing.T) {
	client, server := pair(t, "127.0.0.1:0")
	require.NoError(t, client.Close())
	_, err := UID(server)
	require.ErrorIs(t, err, ErrNobody)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	client, err = net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	_, err = UID(client)
	require.ErrorIs(t, err, ErrPending, "accepted by nobody")
	nc, err := l.Accept()
	require.NoError(t, err)
	defer nc.Close()
	uid, err := UID(client)
	require.NoError(t, err)
	require.Equal(t, os.Geteuid(), uid)
}

func TestAnAddressOfAnotherMachineIsElsewhere(t *testing.T) {
	here, there := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 2}
	_, err := UID(addressed{local: here, remote: there})
	require.ErrorIs(t, err, ErrElsewhere)
	_, err = UID(addressed{local: here, remote: &net.TCPAddr{IP: here.IP, Port: 2}})
	require.ErrorIs(t, err, ErrNobody, "a source that claims to be this machine")
	_, err = UID(addressed{local: here, remote: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2}})
	require.ErrorIs(t, err, ErrNobody)
}

type addressed struct {
	net.Conn
	local, remote net.Addr
}

func (a addressed) LocalAddr() net.Addr  { return a.local }
func (a addressed) RemoteAddr() net.Addr { return a.remote }

// Without sock_diag there is a table of all sockets, which must say the same.
func TestTheTableOfSocketsSaysWhatTheKernelSaysOfOne(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::]:0", "[::1]:0"} {
		client, server := pair(t, address)
		for _, nc := range []net.Conn{client, server} {
			at := plain(nc.RemoteAddr().(*net.TCPAddr).AddrPort())
			to := plain(nc.LocalAddr().(*net.TCPAddr).AddrPort())
			one, err := diag(at, to)
			same, errTable := proc(at, to)
			require.NoError(t, errTable)
			if !errors.Is(err, errNoDiag) { // a kernel without it has the table alone
				require.NoError(t, err)
				require.Equal(t, one, same)
			}
		}
		require.NoError(t, client.Close())
		at, to := plain(client.LocalAddr().(*net.TCPAddr).AddrPort()), plain(server.LocalAddr().(*net.TCPAddr).AddrPort())
		s, err := proc(at, to)
		if err == nil {
			_, err = s.owner()
		}
		require.ErrorIs(t, err, ErrNobody)
	}
}

func BenchmarkUID(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	require.NoError(b, err)
	defer client.Close()
	server, err := l.Accept()
	require.NoError(b, err)
	defer server.Close()
	for b.Loop() {
		if _, err := UID(server); err != nil {
			b.Fatal(err)
		}
	}
}

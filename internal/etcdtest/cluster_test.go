package etcdtest

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAMemberIsNotReadyWhereAnotherListensAtItsAddress(t *testing.T) {
	cl := New(t, 1)
	t.Cleanup(cl.Stop)
	m := cl.Members[0]
	m.End(syscall.SIGKILL)
	l, err := net.Listen("tcp", m.Client)
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, m.Start())
	require.ErrorContains(t, m.Ready(), "address already in use")
	require.Error(t, m.Start(), "it was not ended")
	m.End(syscall.SIGKILL)
	require.NoError(t, l.Close())
	require.NoError(t, m.Start())
	require.NoError(t, m.Ready(), "what an earlier process said does not count")
	require.Contains(t, cl.String(), m.Client+" runs; its log ends with: ")
	require.NoError(t, m.cmd.Process.Kill())
	require.Eventually(t, func() bool { return m.Ready() != nil }, Patience, time.Millisecond, "what it said before it ended does not count either")
	m.End(syscall.SIGKILL)
	require.ErrorContains(t, m.Ready(), "m0 is not there", "what it said before it ended does not count either")
	require.Contains(t, cl.String(), m.Client+" has ended; its log ends with: ")
}

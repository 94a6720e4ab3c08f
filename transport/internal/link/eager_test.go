//go:build unix

package link

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
)

func TestAnEagerUDPSocketGivesEveryDatagramOnce(t *testing.T) {
	leak.Check(t)
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer udp.Close()
	raw, err := eagerSocket(udp, nil, nil).(*eagerUDP).SyscallConn()
	require.NoError(t, err)
	go func() {
		for i := range 200 {
			_, _ = udp.WriteTo([]byte{byte(i)}, udp.LocalAddr())
		}
	}()
	for i := range 200 {
		var b [8]byte
		n := 0
		require.NoError(t, raw.Read(func(fd uintptr) bool {
			n, err = syscall.Read(int(fd), b[:])
			return err == nil
		}))
		require.Equal(t, []byte{byte(i)}, b[:n])
	}
}

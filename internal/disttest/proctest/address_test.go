package proctest_test

import (
	"net"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
)

func TestAnAddressIsOfThisMachineAloneAndNeitherALaunchersNorTheSystems(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		addr := proctest.Address()
		host, port, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		require.True(t, net.ParseIP(host).IsLoopback(), host)
		if runtime.GOOS == "linux" || runtime.GOOS == "windows" { // the others' loopback has one address
			require.False(t, seen[addr])
			require.NotEqual(t, "127.0.0.1", host)
		}
		seen[addr] = true
		n, err := strconv.Atoi(port)
		require.NoError(t, err)
		require.True(t, n >= 20_000 && n < 29_000, port)
	}
	l, err := net.Listen("tcp", proctest.Address())
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

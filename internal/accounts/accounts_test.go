package accounts_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/accounts"
)

func TestAnAccountIsAnAddressANetworkOrAUser(t *testing.T) {
	for address, want := range map[string]string{"10.0.0.1": "10.0.0.1", "::ffff:10.0.0.1": "10.0.0.1", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64",
		"2001:db8:1:2::1": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64"} {
		require.Equal(t, want, accounts.Host(netip.MustParseAddr(address)))
	}
	require.Equal(t, "no address", accounts.Host(netip.Addr{}))
	require.Equal(t, "uid 7", accounts.User(7))
}

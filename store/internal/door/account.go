package door

import (
	"net/netip"
	"strconv"
)

// Network is the account of an address of another machine: an IPv4 address, or an IPv6 network of
// 64 bits, as whoever has one address of that has them all.
func Network(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return a.String()
	}
	if !a.IsValid() {
		return "no address"
	}
	return netip.PrefixFrom(a, 64).Masked().String()
}

// User is the account of a user of this host.
func User(uid int) string { return "uid " + strconv.Itoa(uid) }

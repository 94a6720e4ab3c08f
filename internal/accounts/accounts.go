package accounts

import (
	"net/netip"
	"strconv"
)

// Host is what an address counts for: itself if it is of IPv4, and else its network of 64 bits, as
// whoever has one address of that has them all. An address that is none counts for an account of
// its own.
func Host(a netip.Addr) string {
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

package places

import (
	"net"
	"net/netip"

	"github.com/weft-project/weft/internal/accounts"
)

// AccountOf is a host as strangers are counted.
func AccountOf(addr net.Addr) string {
	if udp, ok := addr.(*net.UDPAddr); ok {
		return accounts.Host(udp.AddrPort().Addr())
	}
	host := HostOf(addr)
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	return accounts.Host(ip)
}

// HostOf is an address without its port.
func HostOf(addr net.Addr) string {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	return host
}

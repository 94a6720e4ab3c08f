package localaddr

import (
	"net"
	"strings"
)

// Towards is the address of this machine that the first host of an endpoint would see.
func Towards(endpoint string) string {
	if i := strings.IndexAny(endpoint, ",/"); i >= 0 {
		endpoint = endpoint[:i]
	}
	conn, err := net.Dial("udp", endpoint) // sends nothing
	if err != nil {
		return "127.0.0.1"
	}
	defer conn.Close()
	host, _, _ := net.SplitHostPort(conn.LocalAddr().String())
	return host
}

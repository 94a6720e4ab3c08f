package identity

import (
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/transport/internal/transporttest"
)

func TestTheLogOfRefusalsIsBounded(t *testing.T) {
	book, log := transporttest.NewLogBook()
	r := NewRefusals(log)
	for i := range 1000 {
		addr := &net.UDPAddr{IP: net.IPv4(10, 0, byte(i>>8), byte(i)), Port: i}
		for range 2 {
			r.Tell(addr, "a cause", errors.New("detail"))
		}
	}
	lines := book.Lines()
	require.Len(t, lines, MaxRefusals)
	require.Contains(t, lines[MaxRefusals-1], "further ones will not be reported")
	require.Len(t, r.told, MaxRefusals)
	r = NewRefusals(log)
	r.Tell(&net.UDPAddr{Port: 1}, "one", nil)
	r.Tell(&net.UDPAddr{Port: 2}, "one", nil)
	r.Tell(&net.UDPAddr{Port: 2}, "two", nil)
	require.Len(t, book.Lines(), MaxRefusals+2, "once per host and cause; the port is not the host")
}

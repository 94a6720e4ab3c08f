package transport_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/transporttest"
)

func bulkOnly(t testing.TB) (dialer, listener transport.Network) {
	cfg := transport.Config{Lanes: []string{transport.LaneBulk}}
	return network(t, cfg), network(t, cfg)
}

func TestALinkWithBulkIsANetwork(t *testing.T) { transporttest.Run(t, bulkOnly) }

func TestALinkSaysThatItHasBulk(t *testing.T) {
	p := transporttest.Link(t, bulkOnly)
	for _, l := range []transport.Link{p.Dialed, p.Served} {
		var names []string
		for _, s := range l.Lanes() {
			if s.Why == "" {
				names = append(names, s.Name)
			}
		}
		require.Equal(t, []string{transport.LaneBulk, transport.LaneQUIC}, names)
	}
}

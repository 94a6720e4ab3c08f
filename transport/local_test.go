//go:build linux

package transport_test

import (
	"testing"

	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/transporttest"
)

func TestTheLocalLaneIsANetwork(t *testing.T) {
	transporttest.Run(t, func(t testing.TB) (dialer, listener transport.Network) {
		cfg := transport.Config{Lanes: []string{transport.LaneLocal}}
		return network(t, cfg), network(t, cfg)
	})
}

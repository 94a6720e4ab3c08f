package transport_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/secret/secrettest"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/internal/transporttest"
)

var token = secrettest.Token("job")

func identity(t testing.TB, token, name string) *transport.Identity {
	id, err := transport.IdentityFromToken(token, "job", name, time.Now)
	require.NoError(t, err)
	return id
}

func network(t testing.TB, cfg transport.Config) transport.Network {
	if cfg.Identity == nil {
		cfg.Identity = identity(t, token, "worker")
	}
	n, err := transport.New(cfg)
	require.NoError(t, err)
	return n
}

func TestQUICIsANetwork(t *testing.T) {
	transporttest.Run(t, func(t testing.TB) (dialer, listener transport.Network) {
		return network(t, transport.Config{Lanes: []string{transport.LaneQUIC}}), network(t, transport.Config{Lanes: []string{transport.LaneQUIC}})
	})
}

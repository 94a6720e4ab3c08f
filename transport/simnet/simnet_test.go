package simnet_test

import (
	"testing"
	"time"

	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/simnet"
)

func TestANetIsANetwork(t *testing.T) {
	for name, cfg := range map[string]simnet.Config{
		"WithoutDelay": {},
		"WithDelays":   {Seed: 1, MaxDelay: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, func(testing.TB) (dialer, listener transport.Network) {
				n := simnet.New(cfg)
				return n.Host("worker0"), n.Host("worker1")
			})
		})
	}
}

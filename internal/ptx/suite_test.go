package ptx_test

import (
	"math/rand/v2"
	"testing"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/cudatest"
	"github.com/weft-project/weft/internal/ptx"
)

func TestAMachineIsADriver(t *testing.T) {
	run := func(t *testing.T, config func() ptx.Config) {
		cudatest.Run(t, cudatest.Suite{
			Open: func(*testing.T) cuda.Driver { return ptx.New(config()) },
			Two: func(*testing.T) (a, b cuda.Driver) {
				c := config()
				c.Host = new(ptx.Host)
				d := config()
				d.Host = c.Host
				return ptx.New(c), ptx.New(d)
			},
			Peers: func(*testing.T) (a, b cuda.Driver) {
				c, d := config(), config()
				c.Host, c.Peers = new(ptx.Host), true
				d.Host, d.Peers = c.Host, true
				return ptx.New(c), ptx.New(d)
			},
			Faults: true,
		})
	}
	t.Run("at once", func(t *testing.T) { run(t, func() ptx.Config { return ptx.Config{} }) })
	for seed := range uint64(5) {
		t.Run("late", func(t *testing.T) {
			run(t, func() ptx.Config { return ptx.Config{Late: rand.New(rand.NewPCG(seed, 1))} })
		})
	}
}

package process

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/disttest/workload"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/rpc"
)

func TestAKilledProcessIsStartedAgainAndComesBackUnderItsRank(t *testing.T) {
	leak.Check(t)
	to := settle(t, workload.Place{Size: 3})
	c, cancel := context.WithTimeout(to.Context(t.Context()), patience)
	defer cancel()
	events := to.Peers(c)
	mix := &workload.Mix{W: to.Worker, Rand: rand.New(rand.NewPCG(1, 2)), MaxElems: 1 << 12}
	lives := map[uint64]bool{}
	for range 2 {
		require.NoError(t, mix.Step(c))
		info, err := to.Find(c, "worker2")
		require.NoError(t, err)
		require.False(t, lives[info.Incarnation], "each is another life")
		lives[info.Incarnation] = true

		to.procs[2].Kill()
		to.procs[2] = proctest.Start(t, nil)
		joining := time.Now()
		require.NoError(t, to.procs[2].Ask(c, "join", to.at(2), nil)) // while the loss may not be noticed yet
		t.Logf("came back in %v", time.Since(joining))
		for e := range events {
			if e.Name == "worker2" && e.Change == rpc.PeerLinked && !lives[e.Incarnation] {
				break
			}
		}
	}
	require.NoError(t, mix.Step(c))
}

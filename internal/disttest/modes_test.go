package disttest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/transport/simnet"
)

// TestSmartModeCostsNeitherMessagesNorTime runs programs that FAST mode can run in both modes, over a network on which every message takes a
// millisecond. Messages of references may share a message or not, in either mode: single programs may differ by one round trip, all together not.
func TestSmartModeCostsNeitherMessagesNorTime(t *testing.T) {
	const roundTrip = 2 * time.Millisecond
	var messages [2]int
	var took [2]time.Duration
	for seed := range uint64(soak.Cases(50)) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			k := newCase(t, seed, ctx.Fast)
			k.net = simnet.Config{MinDelay: time.Millisecond, MaxDelay: time.Millisecond}
			fast, fastTook := k.cost(t)
			k.mode = ctx.Smart
			smart, smartTook := k.cost(t)
			require.InDelta(t, fast, smart, 2, "messages")
			require.LessOrEqual(t, smartTook, fastTook+roundTrip)
			messages[0], messages[1] = messages[0]+fast, messages[1]+smart
			took[0], took[1] = took[0]+fastTook, took[1]+smartTook
		})
	}
	t.Logf("FAST %d messages in %v, SMART %d in %v", messages[0], took[0], messages[1], took[1])
	require.InEpsilon(t, messages[0], messages[1], 0.001)
	require.InEpsilon(t, took[0], took[1], 0.001)
}

// cost is the messages of a pass, and how long it takes.
func (k *randomCase) cost(t *testing.T) (messages int, took time.Duration) {
	messages = k.count(t, func(t *testing.T, w *world) {
		w.pass(t, k.root, func(c context.Context) {
			start := time.Now()
			require.NoError(t, k.pass(c))
			took = time.Since(start)
		})
	})
	return messages, took
}

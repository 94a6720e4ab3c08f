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
// millisecond.
func TestSmartModeCostsNeitherMessagesNorTime(t *testing.T) {
	for seed := range uint64(soak.Cases(50)) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			k := newCase(t, seed, ctx.Fast)
			k.net = simnet.Config{MinDelay: time.Millisecond, MaxDelay: time.Millisecond}
			fast, fastTook := k.cost(t)
			k.mode = ctx.Smart
			smart, smartTook := k.cost(t)
			require.Equal(t, fast, smart, "messages")
			require.LessOrEqual(t, smartTook, fastTook)
		})
	}
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

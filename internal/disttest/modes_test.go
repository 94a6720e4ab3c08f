package disttest

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/transport/simnet"
)

// TestSmartModeCostsNeitherMessagesNorTime runs programs that FAST mode can run in both modes, over
// a network on which every message takes a millisecond, and a little more that is different for
// each pair of workers. Where two workers' gradients come at the same moment, it is otherwise
// chance whose answer waits until what follows from both has been sent on.
func TestSmartModeCostsNeitherMessagesNorTime(t *testing.T) {
	var messages int
	var took time.Duration
	for seed := range uint64(soak.Cases(50)) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			k := newCase(t, seed, ctx.Fast)
			k.net = simnet.Config{Delay: unlike}
			fast, fastTook := k.cost(t)
			k.mode = ctx.Smart
			smart, smartTook := k.cost(t)
			require.Equal(t, fast, smart, "messages")
			require.Equal(t, fastTook, smartTook)
			messages, took = messages+fast, took+fastTook
		})
	}
	t.Logf("%d messages in %v in either mode", messages, took)
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

// unlike gives each way a delay of its own.
func unlike(from, to string, _ *rand.Rand) time.Duration {
	h := fnv.New32()
	_, _ = h.Write([]byte(from + ">" + to))
	return time.Millisecond + time.Duration(h.Sum32()%100_000)
}

package collective

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/transport"
)

// BenchmarkReplicateOfOne shows what Replicate costs a worker that is alone: it and the plain step
// take turns, and "%more" is by how much its median is longer.
func BenchmarkReplicateOfOne(b *testing.B) {
	g := start(b, 1, transport.LaneLocal)
	both := [2]operation{plainMLP(g, 0), replicateMLP(g, 0)}
	var took [2][]time.Duration
	for range 5 { // to warm up
		for _, step := range both {
			require.NoError(b, step(b.Context()))
		}
	}
	b.ResetTimer()
	for n := range b.N {
		for k := range both {
			which := (n + k) % 2 // none is always the first
			began := time.Now()
			require.NoError(b, both[which](b.Context()))
			took[which] = append(took[which], time.Since(began))
		}
	}
	b.StopTimer()
	median := func(all []time.Duration) float64 {
		slices.Sort(all)
		return float64(all[len(all)/2])
	}
	plain, replicated := median(took[0]), median(took[1])
	b.ReportMetric(plain, "plain-ns/step")
	b.ReportMetric(replicated, "ns/step")
	b.ReportMetric(100*(replicated/plain-1), "%more")
}

package lenient

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProcessesAreCrowdedWhereThereAreNoMoreCoresThanThey(t *testing.T) {
	for _, x := range []struct {
		processes, cores int
		want             bool
	}{{1, 1, false}, {2, 1, true}, {2, 2, true}, {2, 4, false}, {4, 4, true}, {3, 4, false}} {
		require.Equal(t, x.want, Crowded(x.processes, x.cores), "%d processes on %d cores", x.processes, x.cores)
	}
}

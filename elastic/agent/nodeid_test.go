package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNoTwoLivesOfAnAgentHaveOneName(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		id := nodeID("host1")
		require.Regexp(t, `^host1_\d+_[0-9a-f]{8}$`, id)
		seen[id] = true
	}
	require.Len(t, seen, 100)
}

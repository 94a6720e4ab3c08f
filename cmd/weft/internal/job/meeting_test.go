package job

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/rdzv"
)

func TestTheFlagsOfTheRendezvousAreTorchruns(t *testing.T) {
	f := &Flags{policy: "group", backend: "c10d", endpoint: "node0", conf: "join_timeout=5, last_call_timeout=0.5,keep_alive_timeout=9", nodeRank: 1, NodeRankGiven: true}
	m, err := f.meeting(4)
	require.NoError(t, err)
	require.Equal(t, meeting{endpoint: "node0:29400", wantRank: 2, policy: rdzv.RestartGroup, joinTimeout: 5 * time.Second,
		lastCall: 500 * time.Millisecond, silence: 9 * time.Second}, m)
	f = &Flags{policy: "worker", backend: "static", masterAddr: "10.0.0.1", masterPort: 29500, NodeRankGiven: true}
	m, err = f.meeting(2)
	require.NoError(t, err)
	require.Equal(t, meeting{endpoint: "10.0.0.1:29501", wantRank: 1}, m)
	for name, f := range map[string]*Flags{
		"torchrun's":        {masterAddr: "10.0.0.1", masterPort: 29500, NodeRankGiven: true},
		"its usual port":    {masterAddr: "10.0.0.1", NodeRankGiven: true},
		"an endpoint":       {backend: "static", endpoint: "10.0.0.1:29500", NodeRankGiven: true},
		"one without port":  {backend: "static", endpoint: "10.0.0.1", NodeRankGiven: true},
		"both, which agree": {backend: "static", endpoint: "10.0.0.1:29500", masterAddr: "10.0.0.1", masterPort: 29500, NodeRankGiven: true},
	} {
		m, err = f.meeting(2)
		require.NoError(t, err, name)
		require.Equal(t, meeting{endpoint: "10.0.0.1:29501", wantRank: 1}, m, name)
		require.Equal(t, []any{"10.0.0.1", 29500}, []any{f.masterAddr, f.masterPort}, name)
	}
	f = &Flags{endpoint: "node0", masterAddr: "10.0.0.1", NodeRankGiven: true} // a rank that it asks for, and where the workers' store is
	m, err = f.meeting(2)
	require.NoError(t, err)
	require.Equal(t, meeting{endpoint: "node0:29400", wantRank: 1}, m)
	f = &Flags{masterAddr: "10.0.0.1", NodeRankGiven: true} // of one machine, which meets nobody
	m, err = f.meeting(1)
	require.NoError(t, err)
	require.Equal(t, meeting{wantRank: 1}, m)
	f = &Flags{policy: "worker", backend: "store", endpoint: "[::1]"}
	m, err = f.meeting(2)
	require.NoError(t, err)
	require.Equal(t, "[::1]:29400", m.endpoint)
}

//go:build !race

package rdzv

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSettingsHaveTheirDefaultsAndThoseThatCannotBeAreToldTogether(t *testing.T) {
	cfg, err := Config{Min: 3}.Populate()
	require.NoError(t, err)
	require.Equal(t, Config{Min: 3, Max: 3, JoinTimeout: 600 * time.Second, LastCall: 30 * time.Second, Settle: 200 * time.Millisecond, Silence: 15 * time.Second}, cfg)
	given := Config{Min: 1, Max: 2, JoinTimeout: 50, LastCall: 40, Settle: 30, Silence: 20, MaxRestarts: 3, Policy: RestartGroup, Proof: "x"}
	cfg, err = given.Populate()
	require.NoError(t, err)
	require.Equal(t, given, cfg)

	_, err = Config{Min: 0, Max: -1, JoinTimeout: -1, Silence: -1, MaxRestarts: -1, Policy: 7, Proof: "two words"}.Populate()
	require.ErrorIs(t, err, ErrInvalid)
	for _, text := range []string{
		"the minimum number of nodes (0) must be greater than zero",
		"the maximum number of nodes (-1) must be greater than or equal to the minimum number of nodes (0)",
		"the join timeout (-1ns) must be positive", "the silence after which a node is lost (-1ns) must be positive",
		"the number of restarts (-1) must not be negative", "unknown restart policy 7", "the proof must have at most",
	} {
		require.ErrorContains(t, err, text)
	}
	_, err = Open(t.Context(), nil, Config{}, Node{ID: "a b"}, nil)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorIs(t, err, ErrRefused, "its name is told together with them")
}

// complete is a round of n nodes.
func complete(t *testing.T, n int) *State {
	cfg := Config{Min: n}
	s, err := NewState(cfg)
	require.NoError(t, err)
	for i := range n {
		s.Decide(Event{Kind: Join, Node: Node{ID: fmt.Sprintf("host-%05d.cluster.example.com_%d_0", i, 1000+i), Addr: fmt.Sprintf("host-%05d.cluster.example.com", i), Slots: 8}, Config: cfg}, epochOfTime)
	}
	require.Equal(t, Complete, s.Summary().Phase)
	return s
}

// The limits are those that torch's test has for its own.
func TestTheSizeOfAnEncodedStateIsWithinTorchsLimits(t *testing.T) {
	for n, limit := range map[int]int{10: 2 << 10, 100: 16 << 10, 1000: 160 << 10, 10_000: 1600 << 10} {
		b, err := complete(t, n).encode(epochOfTime)
		require.NoError(t, err)
		require.Less(t, len(b), limit, "%d nodes", n)
	}
}

func TestWhoIsSilentForExactlyAsLongAsItMayBeIsKept(t *testing.T) {
	s := complete(t, 2)
	s.Decide(Event{Kind: Tick}, epochOfTime.Add(s.cfg.Silence))
	require.Equal(t, 2, s.Summary().Nodes)
	require.Equal(t, epochOfTime.Add(s.cfg.Silence+1), s.next())
	s.Decide(Event{Kind: Tick}, epochOfTime.Add(s.cfg.Silence+1))
	require.Equal(t, 0, s.Summary().Nodes)
	require.Equal(t, 1, s.Summary().Round)
}

func TestHowManyTakePartWaitAndAreSpareIsInTheSummary(t *testing.T) {
	cfg := Config{Min: 1, Max: 3, LastCall: -1}
	s, err := NewState(cfg)
	require.NoError(t, err)
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		s.Decide(Event{Kind: Join, Node: Node{ID: id, Addr: "h", Slots: 1}, Config: cfg}, epochOfTime)
	}
	sum := s.Summary()
	require.Equal(t, []int{1, 2, 2}, []int{sum.Nodes, sum.Waiting, sum.Redundant})
}

func TestARefusalNamesWhatDiffersAndNoSecretsDigest(t *testing.T) {
	job, err := Config{Min: 1, Max: 2, MaxRestarts: 3, Proof: "abc"}.Populate()
	require.NoError(t, err)
	node := job
	node.Proof = "def"
	require.EqualError(t, job.differs(node), "the rendezvous refuses this node: this node's token is not the job's; start all nodes with the same")
	node.Proof, node.Max, node.Silence = "", 4, time.Second
	err = job.differs(node)
	require.EqualError(t, err, "the rendezvous refuses this node: the job has a token, and this node has none; "+
		"the job has nnodes=1:2 keep_alive_timeout=15s, and this node nnodes=1:4 keep_alive_timeout=1s; start all nodes with the same")
	require.ErrorIs(t, err, ErrRefused)
}

func TestWhateverDiffersIsNamed(t *testing.T) {
	job, err := Config{Min: 1}.Populate()
	require.NoError(t, err)
	for i := range reflect.TypeFor[Config]().NumField() {
		node := job
		switch f := reflect.ValueOf(&node).Elem().Field(i); f.Kind() {
		case reflect.String:
			f.SetString("x")
		default:
			f.SetInt(f.Int() + 1)
		}
		require.NotContains(t, job.differs(node).Error(), "node: ;", reflect.TypeFor[Config]().Field(i).Name)
	}
}

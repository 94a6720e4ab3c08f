package agent

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/store"
)

// awaiting are nodes that wait until rounds may start.
type awaiting struct {
	st    *store.Memory
	nodes []*meeting
	runs  sync.WaitGroup
	ready atomic.Int32
	said  atomic.Value // the last
}

// begin has all nodes await a round.
func (a *awaiting) begin(t *testing.T, c context.Context, round int) {
	for rank, m := range a.nodes {
		b := m.shut(round)
		a.runs.Go(func() {
			err := m.await(c, rdzv.Placement{Round: round, Rank: rank, Nodes: len(a.nodes)}, b)
			if err == nil {
				a.ready.Add(1)
			} else if !errors.Is(err, c.Err()) {
				t.Error(err)
			}
		})
	}
}

func awaitingNodes(t *testing.T, n int, see func(t *testing.T, a *awaiting)) {
	synctest.Test(t, func(t *testing.T) {
		a := &awaiting{st: store.NewMemory()}
		defer a.st.Close()
		for range n {
			a.nodes = append(a.nodes, &meeting{st: a.st, waits: waits{say: func(text string) { a.said.Store(text) }}})
		}
		see(t, a)
		a.runs.Wait()
	})
}

func TestARoundStartsWhenEveryNodeOfItIsClear(t *testing.T) {
	awaitingNodes(t, 300, func(t *testing.T, a *awaiting) {
		a.begin(t, t.Context(), 1)
		for rank, m := range a.nodes {
			time.Sleep(time.Second) // a worker takes its time to end
			synctest.Wait()
			require.Zero(t, a.ready.Load(), "rank %d is not clear", rank)
			m.clear(0)
			m.clear(1)
			m.clear(1)
		}
		a.runs.Wait()
		require.Equal(t, "round 1 starts when all 300 nodes have ended their workers of the last one", a.said.Load())
		require.EqualValues(t, 300, a.ready.Load())
	})
}

func TestTheFirstRoundWaitsForNobodyAndOneThatIsOverForNobodyAnyMore(t *testing.T) {
	awaitingNodes(t, 3, func(t *testing.T, a *awaiting) {
		a.begin(t, t.Context(), 0)
		a.nodes[1].clear(0)
		synctest.Wait()
		require.EqualValues(t, 1, a.ready.Load())
		a.nodes[0].clear(0)
		a.nodes[2].clear(0)
		a.runs.Wait()
		c, over := context.WithCancel(t.Context())
		a.begin(t, c, 1)
		a.nodes[0].clear(1)
		synctest.Wait()
		over()
		a.runs.Wait()
		require.EqualValues(t, 3, a.ready.Load())
	})
}

func TestTheKeysByWhichNodesSayThatTheyAreClearDoNotGrowWithTheRounds(t *testing.T) {
	awaitingNodes(t, 3, func(t *testing.T, a *awaiting) {
		for round := range 20 {
			a.begin(t, t.Context(), round)
			for _, m := range a.nodes {
				m.clear(round)
			}
			a.runs.Wait()
		}
		require.EqualValues(t, 60, a.ready.Load())
		keys, err := a.st.ListKeys(t.Context())
		require.NoError(t, err)
		require.Len(t, keys, 3+3, "of each node one, and of the last three rounds: %v", keys)
	})
}

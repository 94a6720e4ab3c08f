package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/weft-project/weft/elastic/rdzv"
)

// A round starts when every node of it is clear: no worker runs there that is of an older round and
// does not hear of the new one. So no two workers are ever in two worlds. A node says so by a key
// in the rendezvous' store; the node with rank 0 waits for all of them, and then says that the
// round may start. A node that is lost meanwhile begins another round, which ends the wait.

// barrier is shut until this node is clear for a round.
type barrier struct {
	round int
	open  chan struct{}
}

// shut makes the barrier of a round that is coming.
func (m *meeting) shut(round int) *barrier {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.barrier = &barrier{round, make(chan struct{})}
	return m.barrier
}

// clear says that this node is clear for a round. It may be said again.
func (m *meeting) clear(round int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.barrier != nil && m.barrier.round == round {
		close(m.barrier.open)
		m.barrier = nil
	}
}

// await returns when a round may start.
func (m *meeting) await(c context.Context, p rdzv.Placement, b *barrier) error {
	select {
	case <-b.open:
	case <-c.Done():
		return context.Cause(c)
	}
	if p.Round == 0 || p.Nodes == 1 { // nothing ran before, or nobody else is to be waited for
		return nil
	}
	late := time.AfterFunc(when[0], func() {
		m.waits.say(fmt.Sprintf("round %d starts when all %d nodes have ended their workers of the last one", p.Round, p.Nodes))
	})
	defer late.Stop()
	all := fmt.Sprintf("clear/%d", p.Round)
	key := func(rank int) string { return fmt.Sprintf("%s/%d", all, rank) }
	said := m.own
	m.own = key(p.Rank)
	err := persist(c, func() error { return m.st.Set(c, m.own, nil) })
	if err == nil && said != "" { // a store that outlives the job is not to grow with its rounds
		_, _ = m.st.Delete(c, said)
	}
	if err == nil && p.Rank == 0 {
		err = m.collect(c, p, key)
	}
	if err == nil && p.Rank == 0 {
		_, _ = m.st.Delete(c, fmt.Sprintf("clear/%d", p.Round-3))
		err = persist(c, func() error { return m.st.Set(c, all, nil) })
	}
	if err == nil {
		err = persist(c, func() error { return m.st.Wait(c, all) })
	}
	if err != nil {
		return fmt.Errorf("waiting until round %d may start: %w", p.Round, err)
	}
	return nil
}

// collect waits for all nodes of a round, some at a time: a message to the store is to stay small.
func (m *meeting) collect(c context.Context, p rdzv.Placement, key func(rank int) string) error {
	const some = 256
	for first := 0; first < p.Nodes; first += some {
		var keys []string
		for rank := first; rank < min(first+some, p.Nodes); rank++ {
			keys = append(keys, key(rank))
		}
		if err := persist(c, func() error { return m.st.Wait(c, keys...) }); err != nil {
			return err
		}
	}
	return nil
}

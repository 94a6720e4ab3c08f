//go:build !race

package rdzv

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/store"
)

// hears takes what a node hears of the others, which must be these.
func (l *life) hears(t *testing.T, want ...Change) {
	t.Helper()
	for _, w := range want {
		select {
		case c := <-l.r.Changes:
			require.Equal(t, Change{Round: w.Round, ID: w.ID, What: w.What}, Change{Round: c.Round, ID: c.ID, What: c.What})
		case <-time.After(time.Hour):
			require.Fail(t, "nothing was heard for an hour", "%+v", w)
		}
	}
	time.Sleep(time.Hour)
	require.Empty(t, l.r.Changes)
}

func TestEveryNodeHearsOnceWhatBecomesOfTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T, st store.Store) {
		cfg := Config{Min: 1, Max: 3, LastCall: -1, MaxRestarts: 1}
		a := begin(t, st, cfg, 0)
		a.take(t, isPlaced)
		a.hears(t)
		b := begin(t, st, cfg, 1)
		b.take(t, isPlaced)
		require.Equal(t, "node n1 joins", b.last.Why)
		a.take(t, isPlaced)
		a.hears(t, Change{Round: 0, ID: "n1", What: "node n1 joins"})
		b.hears(t)
		b.r.Fail(b.place.Round, 3, 1, 0, "exit \x1b[2J code 7")
		b.take(t, func(a Action) bool { return a.Kind == Restart })
		a.hears(t, Change{Round: 1, ID: "n1", What: "restart 1 of 1: worker 3 of n1 failed: exit  [2J code 7"})
		leave(t, a) // who led
		b.take(t, isPlaced)
		require.Equal(t, "node n0 leaves: the test is over", b.last.Why)
		b.hears(t, Change{Round: 1, ID: "n0", What: "node n0 leaves: the test is over"})
		c := begin(t, st, cfg, 2)
		c.take(t, isPlaced)
		b.take(t, isPlaced)
		b.hears(t, Change{Round: 2, ID: "n2", What: "node n2 joins"})
		c.kill()
		b.take(t, isPlaced)
		b.hears(t, Change{Round: 3, ID: "n2", What: "node n2 is lost: no word from it for 15s"})
		<-c.r.done
		leave(t, b)
	})
}

func TestOfManyChangesAtATimeTheLastAreToldAndTheOthersCounted(t *testing.T) {
	p := newPeer(Node{ID: "me"}, Config{Silence: time.Second}, epochOfTime)
	change := func(nth int, id string) Change { return Change{Nth: nth, ID: id, What: id} }
	p.applyBulletin(bulletin{Term: 1, Changes: []Change{change(3, "a"), change(4, "b")}})
	require.Empty(t, p.changes, "that was before it came")
	p.applyBulletin(bulletin{Term: 1, Changes: []Change{change(4, "b"), change(5, "me"), change(6, "c")}})
	p.applyBulletin(bulletin{Term: 1, Changes: []Change{change(6, "c"), change(12, "d")}})
	p.applyBulletin(bulletin{Term: 2, Changes: []Change{change(1, "e")}})
	require.Equal(t, []Change{change(6, "c"), {What: "5 more nodes have come or gone"}, change(12, "d"), change(1, "e")}, p.changes)
}

func TestABulletinWithChangesThatCannotBeIsRefused(t *testing.T) {
	for _, bad := range [][]Change{{{Nth: 0}}, {{Nth: 1, What: strings.Repeat("x", 200)}}, make([]Change, 5)} {
		_, err := readBulletin(pack(bulletin{V: version, Term: 1, Changes: bad}))
		require.ErrorIs(t, err, ErrCorrupt)
	}
}

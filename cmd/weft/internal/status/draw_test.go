package status

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/printable"
)

func seen(id, standing string, rank int, since time.Duration) rdzv.Seen {
	n := rdzv.Seen{Node: rdzv.Node{ID: id, Addr: "h-" + id, Slots: 2}, Standing: standing, Rank: rank, First: 2 * rank, For: since}
	if rank < 0 {
		n.First = -1
	}
	return n
}

func aFrame() frame {
	v := rdzv.View{Summary: rdzv.Summary{Round: 3, Phase: rdzv.Complete, Nodes: 2, Waiting: 1, Min: 2, Max: 4, Restarts: 1, MaxRestarts: 5},
		Config: rdzv.Config{Silence: 15 * time.Second}, Leader: "b", Age: time.Hour, For: 61 * time.Second,
		Nodes: []rdzv.Seen{seen("a", "participating", 0, time.Minute), seen("b", "participating", 1, time.Hour), seen("c", "waiting", -1, 1400*time.Millisecond)},
		Ended: []rdzv.Parted{{ID: "d", Addr: "h-d", Rank: 1, How: rdzv.WasLost, Why: "no word from it for 15s", Ago: 62 * time.Second}, {ID: "e\x1b[2J", Rank: -1}}}
	return frame{View: v, at: "h:1", job: "j"}
}

func TestAJobWhoseLeaderHasShownNothingYetIsSaidToBeBeginning(t *testing.T) {
	f := frame{View: rdzv.View{Summary: rdzv.Summary{Min: 2, Max: 3}}, at: "h:1", job: "j"}
	require.Equal(t, "job j at h:1, for 0s: it is just beginning, and its leader has yet to show who takes part\n", f.text())
	require.Equal(t, 7500*time.Millisecond, patience(f.View), "of the usual settings")
	f.silent = patience(f.View)
	require.Contains(t, f.text(), "\nit has said nothing for 8s\n")
	f.Summary.Nodes = 2 // too many to be shown: what the settings are is not known
	require.NotContains(t, f.text(), "just beginning")
	require.Contains(t, f.text(), "\nrestarts: 0 of 0\n")
}

func TestWhatChangesBetweenTwoLooksIsALineEach(t *testing.T) {
	old, now := aFrame(), aFrame()
	changes := func(old, now frame) []string {
		b := &board{}
		b.remember(old)
		return b.changes(now)
	}
	require.Empty(t, changes(old, now.later(time.Minute)), "that time passes is no change")
	now.Round, now.Summary.Nodes, now.Summary.Restarts = 4, 3, 2
	now.Nodes = []rdzv.Seen{now.Nodes[0], seen("c", "participating", 1, 0), seen("f", "redundant", -1, 0)}
	now.Nodes[0].Failures = 1
	now.Ended = append([]rdzv.Parted{{ID: "b", How: rdzv.HasLeft, Why: "it was asked to"}}, now.Ended...)
	now.Leader, now.silent = "a", 7*time.Second
	require.Equal(t, []string{"b: left: it was asked to", "a worker of a has failed: restart 2 of 5", "c is in", "c has rank 1", "f comes, and is redundant",
		"a leads", "round 4 is complete with 3 of 2 to 4 nodes since 1m1s", "no word of the leader for 7s"}, changes(old, now))
	old = now
	now.Nodes = slices.Clone(now.Nodes)
	now.Nodes[0].Silent, now.store = 9*time.Second, "tcp://h-a:1"
	now.Nodes[1].Earlier = []rdzv.Parted{{ID: "c", How: rdzv.WasLost, Ago: 7 * time.Second}}
	require.Equal(t, []string{"no word of a for 9s; in 6s it is lost", "c; it is back: lost 7s ago", "the workers' store is tcp://h-a:1"}, changes(old, now))
	late := now
	late.Nodes = slices.Clone(now.Nodes)
	late.Nodes[0].Silent = 0
	require.Equal(t, []string{"there is word of a again"}, changes(now, late))
	now = old
	now.silent = 0
	require.Equal(t, []string{"there is word of a leader again"}, changes(old, now))
}

func TestWhoIsNotShownForAWhileIsNoNewsAgain(t *testing.T) {
	b, f := &board{}, aFrame()
	b.remember(f)
	less := aFrame()
	less.Nodes, less.Leader = less.Nodes[:2], "a" // who leads now has yet to hear of c
	require.Equal(t, []string{"a leads"}, b.changes(less))
	b.remember(less)
	f.Leader = "a"
	require.Empty(t, b.changes(f))
	b.remember(f)
	f.Ended = append([]rdzv.Parted{{ID: "c", How: rdzv.WasLost}}, f.Ended...)
	f.Nodes = f.Nodes[:2]
	require.Equal(t, []string{"c: lost"}, b.changes(f))
	b.remember(f)
	f.Nodes = append(f.Nodes, seen("c", "waiting", -1, 0))
	require.Equal(t, []string{"c comes, and is waiting"}, b.changes(f))
}

func TestWorkersThatHaveOtherRanksAreAChange(t *testing.T) {
	b, f := &board{}, aFrame()
	b.remember(f)
	between := aFrame()
	between.Nodes[1].First = -1
	require.Empty(t, b.changes(between), "between two rounds")
	b.remember(between)
	require.Empty(t, b.changes(f))
	f.Nodes[1].First, f.Nodes[1].Slots = 3, 3
	require.Equal(t, []string{"b has the workers 3-5"}, b.changes(f))
}

func TestAsJSONAFrameIsShownAgainWithWhateverHasChangedInItButTheTime(t *testing.T) {
	var out bytes.Buffer
	b, f := &board{w: &out, json: true}, aFrame()
	frames := func() int { return strings.Count(out.String(), "\n") }
	require.NoError(t, b.show(f))
	require.NoError(t, b.show(f.later(21548*time.Millisecond)))
	require.Equal(t, 1, frames())
	for i, change := range []func(){func() { f.Nodes[1].First = 7 }, func() { f.Nodes[1].Slots = 3 }, func() { f.Leader = "a" }, func() { f.Redundant++ }} {
		f.Nodes = slices.Clone(f.Nodes)
		change()
		require.NoError(t, b.show(f))
		require.Equal(t, 2+i, frames())
	}
	require.Contains(t, out.String(), `"first_worker":7`)
	f.Age = 21548 * time.Millisecond
	text, err := json.Marshal(f.asJSON())
	require.NoError(t, err)
	require.Contains(t, string(text), `"age_s":21.548,`)
}

func TestANarrowTerminalCutsTheNodeAndNotTheReasonOfItsEnd(t *testing.T) {
	f := aFrame()
	f.Ended[0].ID = strings.Repeat("long.", 20)
	text := strings.Join(fit(strings.Split(f.text(), "\n"), 80, 24), "\n")
	require.Contains(t, text, "lost   1m2s  no word from it for 15s (long.long.")
}

func TestOnATerminalAFrameTakesThePlaceOfTheLastAndFits(t *testing.T) {
	name := filepath.Join(t.TempDir(), "screen")
	file, err := os.Create(name)
	require.NoError(t, err)
	defer file.Close()
	b := &board{w: file, terminal: file} // it has no size, so it is taken for 80 by 24
	f := aFrame()
	require.NoError(t, b.show(f))
	require.NoError(t, b.tick(f, time.Second))
	for i := range 100 {
		f.Nodes = append(f.Nodes, seen(fmt.Sprint("n", i), "waiting", -1, 0))
	}
	require.NoError(t, b.show(f))
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	frames := strings.Split(string(text), "\x1b[J")
	require.Len(t, frames, 4)
	require.Contains(t, frames[2], "for 1h0m1s")
	require.True(t, strings.HasSuffix(frames[1], "\x1b[9A"), "%q", frames[1])
	require.Equal(t, 23, strings.Count(frames[3], "\n"))
	require.Contains(t, frames[3], "… and 87 lines more")
	for _, line := range strings.Split(frames[3], "\n") {
		require.LessOrEqual(t, len([]rune(line)), 80)
	}
}

// steering holds what moves a cursor, renames a window, forges a line, and turns the direction of
// writing.
const steering = "\x1b]0;mine\a\x1b[2J\rweft: all is well\u009b31m\u202e"

func TestWordsOfOtherMachinesSteerNoTerminalOfWhoLooksAtThem(t *testing.T) {
	other := rdzv.Seen{Node: rdzv.Node{ID: steering, Addr: steering, Slots: 1}, Earlier: []rdzv.Parted{{ID: steering, Why: steering}}}
	f := frame{View: rdzv.View{Leader: steering, Nodes: []rdzv.Seen{other}, Ended: []rdzv.Parted{{ID: steering, Why: steering}}}, job: steering, store: steering}
	f.Phase, f.Failed, f.Outcome = rdzv.Closed, true, steering
	r := &board{before: &frame{}}
	for where, text := range map[string]string{"status": f.text(), "status --watch": strings.Join(r.changes(f), "\n")} {
		require.Contains(t, text, "mine", where)
		require.Equal(t, printable.Lines(text, len(text)), text, where)
	}
}

func TestAStatusDrawsWhoIsInWhoWaitsAndWhoHasGoneSinceWhenAndWhy(t *testing.T) {
	f := aFrame()
	f.Nodes[1].Done, f.Nodes[1].Failures = true, 1
	f.store = "tcp://h-a:29500"
	f.Nodes[0].Silent = 11200 * time.Millisecond
	f.Nodes[2].Earlier = []rdzv.Parted{{ID: "b0", How: rdzv.HasLeft, Why: "it was asked to", Ago: 3 * time.Second}, {ID: "b00"}}
	require.Equal(t, `job j at h:1, for 1h0m0s: round 3 is complete with 2 of 2 to 4 nodes since 1m1s
restarts: 1 of 5; restart policy: worker; a node is lost after 15s without a word
the workers' store: tcp://h-a:29500
RANK  STATE    SINCE   HEARD                RANKS  FAILED  ADDRESS  NODE
0     in       1m0s    11s ago, lost in 4s  0-1    0       h-a      a
1     done     1h0m0s  -                    2-3    1       h-b      b, leads
-     waiting  1s      <10s                 (2)    0       h-c      c; it is back: left 3s ago as b0: it was asked to
RANK  ENDED  AGO   WHY, NODE
1     lost   1m2s  no word from it for 15s (d)
-     left   0s    e [2J
`, f.text())
	f.silent, f.Leader = 8*time.Second, ""
	require.Contains(t, f.text(), "NO WORD of its leader for 8s")
	f.silent = 0
	require.Contains(t, f.text(), "nobody leads at this moment")
	f.Phase, f.Summary.Nodes = rdzv.Gathering, 1
	require.Contains(t, f.text(), "round 3 needs 1 more (1 of 2 to 4 are there) since 1m1s\n")
	f.Left = 9500 * time.Millisecond
	require.Contains(t, f.text(), "round 3 needs 1 more (1 of 2 to 4 are there) since 1m1s, and waits for 10s more\n")
	require.Contains(t, f.later(3*time.Second).text(), "and waits for 7s more\n")
	f.Summary.Nodes = 2
	require.Contains(t, f.text(), "round 3 has 2 of 2 to 4 nodes, and takes others for 10s more\n")
	f.Summary.Nodes = 1
	f.Phase, f.Failed, f.Outcome = rdzv.Closed, true, "all is lost"
	require.Contains(t, f.text(), "failed 1m1s ago: all is lost")
	f.Nodes = nil
	require.Contains(t, f.text(), "1 nodes take part, 1 wait, 0 are redundant: too many to be listed")
}

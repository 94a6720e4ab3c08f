package rpc

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport/simnet"
)

func aGroup() GroupStatus {
	return GroupStatus{
		Name: "g", Generation: 2, Rank: 1, Size: 3,
		Pending: []GroupPending{{Key: "#7", Call: "AllReduce Sum of 3 float32", Line: "a.go:1", Seconds: 1.5, Waits: []GroupAwaited{{Worker: "worker1"}, {"worker2", "b.go:2"}}}},
		Totals:  []GroupTotal{{"AllReduce", 7, 1, 84, 0.25}},
	}
}

func TestGroupsAreShownToObserversAndInMetricsUntilTheyAreHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, n := simWith(t, 2, simnet.Config{}, serve(double))
		hide := []func(){ShowGroup(ws[0], aGroup), ShowGroup(ws[0], aGroup)}
		second := aGroup()
		second.Name = "g#2" // no two have one name
		all := watch(t, n, ws[0].members.Registry.Store)
		require.Equal(t, []GroupStatus{aGroup(), second}, all[0].Status.Groups)
		require.Empty(t, all[1].Status.Groups)
		m := scrape(t, ws...)
		for name, want := range map[string]string{
			`operations_total{group="g",operation="AllReduce",outcome="done",worker="worker0"}`:     "7",
			`operations_total{group="g#2",operation="AllReduce",outcome="failed",worker="worker0"}`: "1",
			`bytes_total{group="g",operation="AllReduce",worker="worker0"}`:                         "84",
			`operation_seconds_total{group="g",operation="AllReduce",worker="worker0"}`:             "0.25",
			`size{group="g",worker="worker0"}`:                                                      "3",
			`generation{group="g",worker="worker0"}`:                                                "2",
			`operations_pending{group="g",worker="worker0"}`:                                        "1",
			`awaited{group="g",peer="worker2",worker="worker0"}`:                                    "1",
		} {
			require.Equal(t, want, m["weft_group_"+name], name)
		}
		for _, fn := range hide {
			fn()
		}
		require.Empty(t, watch(t, n, ws[0].members.Registry.Store)[0].Status.Groups)
		leaveAll(t, ws)
	})
}

func TestGroupsThatDoNotFitInAStatusAreCounted(t *testing.T) {
	var all []GroupStatus
	for i := range 200 {
		g := aGroup()
		g.Name = fmt.Sprint("\xff", strings.Repeat("g", 10*i))
		for k := range 100 {
			p := g.Pending[0]
			p.Line = strings.Repeat("l", 10*k)
			p.Waits = make([]GroupAwaited, k)
			for w := range p.Waits {
				p.Waits[w].Worker = "worker1"
			}
			g.Pending = append(g.Pending, p)
		}
		all = append(all, g)
	}
	st := Status{Name: "a", World: 1}
	require.NoError(t, st.withGroups(all))
	require.NotEmpty(t, st.Groups)
	require.Equal(t, 200, len(st.Groups)+st.GroupsOmitted)
	require.Len(t, st.Groups[0].Pending, maxStatusPending)
	require.Equal(t, 101-maxStatusPending, st.Groups[0].Omitted)
	raw, err := wire.Encode(st)
	require.NoError(t, err)
	require.LessOrEqual(t, len(raw), maxStatusGroups+maxStatusGroups/8)
	got, err := decodeStatus(raw)
	require.NoError(t, err)
	require.Len(t, got.Groups, len(st.Groups))
}

func TestAGroupThatCannotBeIsRefusedAndItsTextsAreHarmless(t *testing.T) {
	st := func(g GroupStatus) error {
		raw, err := wire.Encode(Status{Name: "a", World: 1, Groups: []GroupStatus{g}})
		require.NoError(t, err)
		got, err := decodeStatus(raw)
		if err == nil {
			require.NotContains(t, fmt.Sprint(got), "\x1b")
		}
		return err
	}
	g := aGroup()
	g.Name, g.Ended, g.Totals[0].Operation = "\x1b", "\x1b", "\x1b"
	g.Pending[0].Call, g.Pending[0].Line, g.Pending[0].Key, g.Pending[0].Waits[0].Line = "\x1b", "\x1b", "\x1b", "\x1b"
	require.NoError(t, st(g))
	for name, change := range map[string]func(*GroupStatus){
		"rank":    func(g *GroupStatus) { g.Rank = -1 },
		"size":    func(g *GroupStatus) { g.Size = 1 << 20 },
		"omitted": func(g *GroupStatus) { g.Omitted = -1 },
		"pending": func(g *GroupStatus) { g.Pending = make([]GroupPending, maxStatusPending+1) },
		"totals":  func(g *GroupStatus) { g.Totals = make([]GroupTotal, maxStatusTotals+1) },
		"waits":   func(g *GroupStatus) { g.Pending[0].Waits = make([]GroupAwaited, maxStatusWaits+1) },
		"worker":  func(g *GroupStatus) { g.Pending[0].Waits[0].Worker = "\x1b" },
		"time":    func(g *GroupStatus) { g.Pending[0].Seconds = -1 },
	} {
		g := aGroup()
		change(&g)
		require.ErrorIs(t, st(g), ErrProtocol, name)
	}
}

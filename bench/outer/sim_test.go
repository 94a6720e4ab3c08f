package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// quiet is a setting in which nothing is ever lost.
func quiet(workers int, groups ...int) setting {
	s := usual(workers, groups...)
	s.LossEvery, s.Outer = math.Inf(1), 20
	return s
}

func TestWithoutLossesAStepIsItsFormula(t *testing.T) {
	for _, groups := range [][]int{{60}, {10, 6}, {5, 4, 3}} {
		s := quiet(60, groups...)
		s.Uplink, s.Slowest = 20*mbit, 20*mbit
		s.Every = 1 // so that the network counts
		ws := newWorkers(s)
		fastest, latency, slowest := math.Inf(1), 0.0, math.Inf(1)
		for _, w := range ws {
			fastest, latency, slowest = min(fastest, w.pace), max(latency, w.latency), min(slowest, w.uplink)
		}
		most, part := 0.0, s.Params*s.Bytes
		for _, n := range groups {
			most += 4*latency + (2*part*float64(n-1)/float64(n)+noteBytes*float64(n-1))/slowest
			part /= float64(n)
		}
		o := simulate(s)
		require.InDelta(t, fastest, o.Compute, 1e-9)
		require.LessOrEqual(t, o.Step, most+1e-9)
		require.Greater(t, o.Step, most*0.5, "other groups than the slowest are faster")
		require.Zero(t, o.Broken+o.LeftOut+o.Joins+o.Again)
		require.EqualValues(t, 1, o.Tries)
		require.Equal(t, "the slowest uplink", o.FailsBy)
	}
}

func TestASimulationIsTheSameAtEachRun(t *testing.T) {
	s := usual(500, 25, 20)
	require.Equal(t, simulate(s), simulate(s))
	other := s
	other.Seed++
	require.NotEqual(t, simulate(s), simulate(other))
}

func TestLossesBreakExchangesOfLargeGroupsFirst(t *testing.T) {
	few, many := simulate(usual(1000, 10, 10, 10)), simulate(usual(1000, 1000))
	require.Less(t, few.Broken, 0.05)
	require.Greater(t, many.Broken, 0.5)
	require.Less(t, few.LeftOut, many.LeftOut)
	o := simulate(usual(10_000, 10_000))
	require.Greater(t, o.LeftOut, 0.5)
	require.Equal(t, "losses: no exchange ends", o.FailsBy)
}

func TestWhoIsLostComesBackAsANewcomerAndIsTakenIn(t *testing.T) {
	s := usual(1, 1)
	w := newWorkers(s)[0]
	require.True(t, w.here(w.lost/2))
	require.False(t, w.here(w.lost))
	back := w.back
	w.advance(s, back)
	require.False(t, w.here(back), "it has no parameters yet")
	sim := &simulation{setting: s, ws: []*worker{w}}
	require.Equal(t, 2*joinBytes*s.Params/w.uplink, sim.admit(back))
	require.True(t, w.here(back))
	require.Zero(t, sim.admit(back), "nobody comes")
}

func TestAGroupOfEachLevelHasTheMembersThatHaveOnePiece(t *testing.T) {
	s := quiet(12, 3, 4)
	sim := &simulation{setting: s, ws: newWorkers(s)}
	links, sent := sim.cost()
	require.Equal(t, 2+3, links)
	part := s.Params * s.Bytes
	require.InDelta(t, 2*part*2/3+2*part/3*3/4+noteBytes*5, sent, 1)
	sim.exchange(0)
	require.Equal(t, 4+3, sim.groups)
}

func TestAllWorkersFitIntoTheGroupsOfAnArrangement(t *testing.T) {
	for _, a := range arrangements() {
		for _, n := range []int{1, 2, 10, 99, 100, 101, 1000, 10_000} {
			all := 1
			for _, g := range a.groups(n) {
				all *= g
			}
			require.GreaterOrEqual(t, all, n, "%s, %v", a.name, a.groups(n))
			require.Less(t, all, 4*n+4)
		}
	}
	require.Equal(t, "22 × 22 × 21", sizes(arrangements()[2].groups(10_000)))
}

func TestThePageHasTheTableThatComesOut(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	require.NoError(t, run(&out, dir))
	page, err := os.ReadFile("../../docs/internet.md")
	require.NoError(t, err)
	require.Contains(t, string(page), out.String(), "go run ./bench/outer prints it, and draws")
	for _, name := range []string{"outer-workers.svg", "outer-losses.svg"} {
		drawn, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		kept, err := os.ReadFile(filepath.Join("../../docs", name))
		require.NoError(t, err)
		require.Equal(t, len(drawn), len(kept), name)
	}
}

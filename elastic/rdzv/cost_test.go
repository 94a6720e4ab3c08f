//go:build !race

package rdzv

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/weft-project/weft/internal/soak"
)

var docs = flag.String("docs", "", "a folder with rendezvous.md, into which the costs of jobs of 10 to 10,000 nodes are written, and drawn beside it")

// jobCost is what a job costs that nodes join, of which one in a hundred dies, that as many join
// late, and that ends.
type jobCost struct {
	nodes, rounds int
	took          time.Duration     // from the last call until everybody knew of the first round
	parts         [len(phases)]cost // joining, losing, growing, ending
	state         int               // bytes of the state and the lease
}

var phases = [...]string{"joining", "losing 1 %", "growing by 1 %", "ending"}

// all is the sum of all parts, per node.
func (j jobCost) all() (messages, bytes float64) {
	for _, p := range j.parts {
		messages += float64(p.messages) / float64(j.nodes)
		bytes += float64(p.bytes) / float64(j.nodes)
	}
	return messages, bytes
}

// liveThrough simulates such a job: each phase takes 30 s, of which that in which something happens
// are 5 or 10.
func liveThrough(t *testing.T, n int) (j jobCost) {
	s := newSim(t, uint64(n), Config{Min: n * 9 / 10, Max: 2 * n, LastCall: 10 * time.Second})
	few := max(n/100, 1)
	for i, begin := range [len(phases)]func(){
		func() { s.join(n, 5*time.Second) },
		func() { s.die(few, 10*time.Second) },
		func() { s.join(few, 10*time.Second) },
		func() { s.done(10 * time.Second) },
	} {
		begin()
		if s.pass(30 * time.Second); !s.over {
			s.settled()
		}
		for k, c := range s.sums {
			j.parts[i].messages += c.messages
			j.parts[i].bytes += c.bytes
			if kind(k) == keeping {
				j.state += c.bytes
			}
		}
		s.sums = [kinds]cost{}
	}
	for _, seat := range s.seats {
		require.True(t, seat.dead || seat.peer.over, "%s was not told of the end", seat.node.ID)
	}
	j.nodes, j.rounds, j.took = n, len(s.rounds), s.rounds[0].last.Sub(s.rounds[0].first)
	return j
}

// In each of these jobs every round becomes complete, and no two nodes disagree on one.
func TestTheMessagesAndBytesOfAJobGrowWithItsNodesAndNotFaster(t *testing.T) {
	sizes := []int{30, 100, 300}
	if *docs != "" || soak.Cases(1) > 1 {
		sizes = []int{10, 30, 100, 300, 1000, 3000, 10_000}
	}
	var jobs []jobCost
	var of100 jobCost
	for _, n := range sizes {
		j := liveThrough(t, n)
		t.Logf("%+v", j)
		jobs = append(jobs, j)
		if n == 100 {
			of100 = j
		}
	}
	last := jobs[len(jobs)-1]
	require.Less(t, perNode(last, 0), 1.2*perNode(of100, 0), "messages of joining, per node")
	require.Less(t, float64(last.parts[0].bytes)/float64(last.nodes), 1.2*float64(of100.parts[0].bytes)/100)
	messages, bytes := last.all()
	few, fewBytes := of100.all()
	require.Less(t, messages, 2*few, "messages per node")
	require.Less(t, bytes, 2.5*fewBytes, "bytes per node")
	if *docs != "" {
		require.NoError(t, write(*docs, jobs))
	}
}

func perNode(j jobCost, phase int) float64 {
	return float64(j.parts[phase].messages) / float64(j.nodes)
}

// write replaces the table in rendezvous.md and draws it.
func write(folder string, jobs []jobCost) error {
	var table strings.Builder
	table.WriteString("| nodes | rounds | " + strings.Join(phases[:], " | ") + " | all, messages | all, bytes | of them state |\n|" + strings.Repeat(" --- |", len(phases)+5) + "\n")
	for _, j := range jobs {
		fmt.Fprintf(&table, "| %d | %d |", j.nodes, j.rounds)
		for k, p := range j.parts {
			fmt.Fprintf(&table, " %.1f, %.0f B |", perNode(j, k), float64(p.bytes)/float64(j.nodes))
		}
		messages, bytes := j.all()
		fmt.Fprintf(&table, " %.1f | %.0f | %.0f |\n", messages, bytes, float64(j.state)/float64(j.nodes))
	}
	file := filepath.Join(folder, "rendezvous.md")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	old := regexp.MustCompile(`(?m)^\| nodes \| rounds(.*\n\|)*.*\n`)
	if !old.Match(text) {
		return fmt.Errorf("%s has no table to replace, which begins with nodes and rounds", file)
	}
	text = old.ReplaceAllLiteral(text, []byte(table.String()))
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	return draw(filepath.Join(folder, "rendezvous.svg"), jobs)
}

func draw(file string, jobs []jobCost) error {
	p := plot.New()
	p.Title.Text = "The rendezvous of a job, simulated: what a node costs"
	p.X.Label.Text, p.Y.Label.Text = "nodes", "per node"
	p.X.Scale, p.Y.Min = plot.LogScale{}, 0
	var ticks plot.ConstantTicks
	for _, j := range jobs {
		ticks = append(ticks, plot.Tick{Value: float64(j.nodes), Label: strconv.Itoa(j.nodes)})
	}
	p.X.Tick.Marker = ticks
	p.Add(plotter.NewGrid())
	for i, line := range []struct {
		name string
		of   func(jobCost) float64
	}{
		{"messages, the whole job", func(j jobCost) float64 { m, _ := j.all(); return m }},
		{"messages, joining", func(j jobCost) float64 { return perNode(j, 0) }},
		{"kilobytes, the whole job", func(j jobCost) float64 { _, b := j.all(); return b / 1e3 }},
		{"kilobytes, joining", func(j jobCost) float64 { return float64(j.parts[0].bytes) / float64(j.nodes) / 1e3 }},
	} {
		var xys plotter.XYs
		for _, j := range jobs {
			xys = append(xys, plotter.XY{X: float64(j.nodes), Y: line.of(j)})
			p.Y.Max = math.Max(p.Y.Max, 1.35*line.of(j)) // room for the names
		}
		l, dots, err := plotter.NewLinePoints(xys)
		if err != nil {
			return err
		}
		l.Color, dots.Color, dots.Shape = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i)
		p.Add(l, dots)
		p.Legend.Add(line.name, l, dots)
	}
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs, p.Legend.YOffs = 2*vg.Millimeter, -2*vg.Millimeter
	return p.Save(16*vg.Centimeter, 10*vg.Centimeter, file)
}

func TestTheTableIsReplacedAndDrawn(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "rendezvous.md")
	require.NoError(t, os.WriteFile(file, []byte("no table\n"), 0o644))
	require.ErrorContains(t, write(dir, nil), "has no table to replace")
	require.NoError(t, os.WriteFile(file, []byte("before\n\n| nodes | rounds | old |\n| --- |\n| 1 |\n\nafter\n| not | this |\n"), 0o644))
	j := jobCost{nodes: 10, rounds: 3}
	for k := range j.parts {
		j.parts[k] = cost{messages: 100 * (k + 1), bytes: 5000}
	}
	more := j
	more.nodes = 100
	require.NoError(t, write(dir, []jobCost{j, more}))
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(got), "before\n\n| nodes | rounds | joining |")
	require.Contains(t, string(got), "| 10 | 3 | 10.0, 500 B | 20.0, 500 B | 30.0, 500 B | 40.0, 500 B | 100.0 | 2000 | 0 |\n| 100 | 3 |")
	require.Contains(t, string(got), " |\n\nafter\n| not | this |\n")
	require.NotContains(t, string(got), "old")
	svg, err := os.ReadFile(filepath.Join(dir, "rendezvous.svg"))
	require.NoError(t, err)
	require.Contains(t, string(svg), "messages, the whole job")
}

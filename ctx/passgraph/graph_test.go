package passgraph

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
)

func TestMergeOrdersWorkersAndJoinsTheEndsOfTheirMessages(t *testing.T) {
	s := newScript(2)
	p := s.param(0, 3, 3)
	arrived := s.message(1, "add", p, p)
	back := s.message(0, "the result of add", s.call(1, "add", f32(3, 3), arrived...))
	s.call(0, "mul", f32(3, 3), back[0], back[0])
	g, err := Merge(1<<48|5, s.workers[1], s.workers[0])
	require.NoError(t, err)
	require.Equal(t, []string{"worker0", "worker1"}, []string{g.Workers[0].Name, g.Workers[1].Name})
	require.Equal(t, []Link{
		{From: At{0, 0}, To: At{0, 1}, Bytes: 36},                     // sent twice in one message, one value
		{From: At{0, 2}, To: At{0, 3}, Bytes: 36},                     // squared
		{From: At{1, 0}, To: At{1, 1}, Bytes: 72},                     // two results of one message
		{From: At{1, 1}, To: At{1, 2}, Bytes: 36},                     //
		{From: At{1, 2}, To: At{0, 2}, Bytes: 36, Message: 2 | 1<<48}, // messages come last
		{From: At{0, 1}, To: At{1, 0}, Bytes: 72, Message: 1},
	}, g.Links())
}

func TestAMessageOfWhichOneEndIsMissingOrElsewhereHasNoLink(t *testing.T) {
	for name, change := range map[string]func(w []Worker){
		"no recv":        func(w []Worker) { w[1].Nodes = nil },
		"no send":        func(w []Worker) { w[0].Nodes = nil },
		"another id":     func(w []Worker) { w[1].Nodes[0].Message++ },
		"to another":     func(w []Worker) { w[0].Nodes[1].Peer = 2 },
		"from another":   func(w []Worker) { w[1].Nodes[0].Peer = 2 },
		"a stolen reply": func(w []Worker) { w[1].Rank = 3 },
	} {
		s := newScript(2)
		s.message(1, "f", s.param(0, 1))
		change(s.workers)
		for _, l := range s.graph(t).Links() {
			require.Zero(t, l.Message, name)
		}
	}
	s := newScript(2)
	s.message(1, "f", s.param(0, 1))
	s.workers[1].Nodes = append(s.workers[1].Nodes, s.workers[1].Nodes[0])
	require.Len(t, s.graph(t).Links(), 2, "of two that claim one message the first has it")
}

func TestAPartThatCannotBeOneIsRefused(t *testing.T) {
	many := Worker{Name: "worker0", Nodes: make([]Node, MaxNodes+1)}
	for i := range many.Nodes {
		many.Nodes[i].Kind = Function
	}
	wide := Worker{Nodes: []Node{{Kind: Function, Results: make([]Type, MaxLinks+1)}}}
	node := func(n Node) Worker {
		return Worker{Nodes: []Node{{Kind: Parameter, Results: []Type{f32(2)}}, n}}
	}
	for name, w := range map[string]Worker{
		"a rank below 0":          {Rank: -1},
		"a rank beyond 16 bits":   {Rank: 1 << 16},
		"a peer beyond 16 bits":   {Peers: []int{1 << 16}},
		"a long name":             {Name: strings.Repeat("x", maxText+1)},
		"a long reason":           {Lost: strings.Repeat("x", maxText+1)},
		"fewer than none omitted": {Omitted: -1},
		"less than nothing held":  {Held: -1},
		"too many nodes":          many,
		"too many results":        wide,
		"no kind":                 node(Node{}),
		"an unknown kind":         node(Node{Kind: Recv + 1}),
		"a long function name":    node(Node{Kind: Function, Name: strings.Repeat("x", maxText+1)}),
		"a peer of no rank":       node(Node{Kind: Send, Peer: -1}),
		"negative time":           node(Node{Kind: Function, Forward: -1}),
		"an input of itself":      node(Node{Kind: Function, Inputs: []Input{{Node: 1}}}),
		"an input of nowhere":     node(Node{Kind: Function, Inputs: []Input{{Node: -1}}}),
		"a result that is not":    node(Node{Kind: Function, Inputs: []Input{{Slot: 1}}}),
		"a negative result":       node(Node{Kind: Function, Inputs: []Input{{Slot: -1}}}),
		"an unknown dtype":        node(Node{Kind: Function, Results: []Type{{Dtype: 99}}}),
		"a negative extent":       node(Node{Kind: Function, Results: []Type{f32(-1)}}),
		"a shape without end":     node(Node{Kind: Function, Results: []Type{f32(math.MaxInt, math.MaxInt)}}),
	} {
		_, err := Merge(1, w)
		require.ErrorIs(t, err, ErrPart, name)
	}
	_, err := Merge(1, Worker{Rank: 2}, Worker{Rank: 2})
	require.ErrorIs(t, err, ErrPart, "twice the same worker")
	_, err = Merge(1, node(Node{Kind: Function, Inputs: []Input{{}}}))
	require.NoError(t, err)
}

func TestABoundedPartPassesTheCheckAndSaysWhatItLeftOut(t *testing.T) {
	for _, w := range []Worker{
		{Name: strings.Repeat("é", maxText), Lost: strings.Repeat("\xff", 2*maxText)},
		{Nodes: make([]Node, MaxNodes+7)},
		{Nodes: []Node{{Results: make([]Type, MaxLinks)}, {Name: strings.Repeat("x", 1000)}, {Results: []Type{f32(1)}}}},
	} {
		for i := range w.Nodes {
			w.Nodes[i].Kind = Function
			for j := range w.Nodes[i].Results {
				w.Nodes[i].Results[j] = f32()
			}
		}
		before := len(w.Nodes)
		w.Bound()
		require.NoError(t, w.Check())
		require.Equal(t, before, len(w.Nodes)+w.Omitted)
		require.LessOrEqual(t, len(w.Name), maxText)
	}
	w := Worker{Name: strings.Repeat("é", maxText)}
	w.Bound()
	require.True(t, utf8.ValidString(w.Name), "cut at a character")
	lost := Lose(3, "worker3", errors.New(strings.Repeat("no ", 100)))
	require.NoError(t, lost.Check())
	require.True(t, strings.HasPrefix(lost.Lost, "no no "))
}

func TestSizesAndTimesHaveAtMostThreeDigits(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "0.98 KiB", 1024: "1 KiB", 36 << 10: "36 KiB", 1<<20 - 1: "1 MiB",
		3 << 19: "1.50 MiB", 999 << 20: "999 MiB", 5 << 40: "5 TiB", math.MaxInt64: "8192 PiB", -1: "-1 B",
	} {
		require.Equal(t, want, bytesText(n))
	}
	for d, want := range map[time.Duration]string{
		0: "0 ns", 999: "999 ns", 1500: "1.50 µs", 999_400: "999 µs", 999_600: "1 ms", 12_340_000: "12.3 ms", time.Second: "1 s", 90 * time.Minute: "5400 s",
	} {
		require.Equal(t, want, timeText(d))
	}
}

func TestTypesPrintShort(t *testing.T) {
	require.Equal(t, "f32[3×3]", f32(3, 3).String())
	require.Equal(t, "i64", Type{Dtype: device.Int64}.String())
	require.Equal(t, "2× f32[3]", typesText([]Type{f32(3), f32(3)}))
	require.Equal(t, "f32[3] +1", typesText([]Type{f32(3), f32(4)}))
	require.Equal(t, "", typesText(nil))
}

func TestTextIsCutAtItsWidthAndMadePrintable(t *testing.T) {
	require.Equal(t, "linear", cut("linear", 6))
	require.Equal(t, "linea…", cut("linear2", 6))
	require.Equal(t, "层归…", cut("层归一化", 6))
	require.Equal(t, 8, columns("层归一化"))
	require.Equal(t, "a b c d", shown("a\x00b\nc\xffd"))
}

func TestGradientsThatCameBackAreDrawnBesideWhatWasSent(t *testing.T) {
	s := newScript(2)
	there := s.message(1, "step", s.param(0, 8, 8), s.call(0, "batch", f32(64, 784)))
	s.message(0, "the result of step", s.call(1, "mul", f32(64), there...))
	for wi, bytes := range []int64{256, 12 << 10} {
		for ni := range s.workers[wi].Nodes {
			if n := &s.workers[wi].Nodes[ni]; n.Kind == Send {
				n.Back = bytes
			}
		}
	}
	g := s.graph(t)
	require.Equal(t, "pass 0.17: 2 workers, 2 functions, 2 messages of 196 KiB, 12.2 KiB of gradients back", title(g))
	require.Equal(t, []string{"worker0", "1 function", "1 param · 256 B", "1 sent · 196 KiB", "1 received · 256 B", "gradients · 12 KiB sent", "gradients · 256 B received"},
		heading(g, 0, g.Links()))
	var svg, dot strings.Builder
	require.NoError(t, g.WriteSVG(&svg))
	require.NoError(t, g.WriteDOT(&dot))
	require.Contains(t, svg.String(), "gradients · 12 KiB back")
	require.Contains(t, dot.String(), `196 KiB\n256 B back`)

	for wi := range s.workers {
		for ni := range s.workers[wi].Nodes {
			s.workers[wi].Nodes[ni].Back = -1
		}
	}
	require.ErrorIs(t, s.workers[0].Check(), ErrPart)
}

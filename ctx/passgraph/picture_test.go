package passgraph

import (
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

func TestThePicturesAreAsTheyWereWhenAPersonLookedAtThem(t *testing.T) {
	for name, g := range map[string]*Graph{
		"example": documented(t), "random50": random(rand.New(rand.NewPCG(1, 4)), 4, 50).graph(t), "pipeline": pipeline(t, 3, 2),
	} {
		for ext, write := range map[string]func(io.Writer) error{".svg": g.WriteSVG, ".dot": g.WriteDOT} {
			var b bytes.Buffer
			require.NoError(t, write(&b))
			file := filepath.Join("testdata", name+ext)
			if *update {
				require.NoError(t, os.WriteFile(file, b.Bytes(), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), b.String(), "%s; look at the new one, and run the test with -update", file)
		}
	}
}

func TestTheNameOfAFileSaysWhatIsWrittenToIt(t *testing.T) {
	g, dir := documented(t), t.TempDir()
	for ext, write := range map[string]func(io.Writer) error{".svg": g.WriteSVG, ".dot": g.WriteDOT} {
		var b bytes.Buffer
		require.NoError(t, write(&b))
		file := filepath.Join(dir, "pass"+ext)
		require.NoError(t, g.WriteFile(file))
		have, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, b.String(), string(have))
	}
	require.ErrorContains(t, g.WriteFile(filepath.Join(dir, "pass.png")), ".svg or .dot")
	require.Error(t, g.WriteFile(filepath.Join(dir, "nowhere", "pass.svg")))
	require.NoFileExists(t, filepath.Join(dir, "pass.png"))
}

// some are random graphs of all sizes.
func some(t *testing.T, each func(g *Graph)) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 30 {
		g := random(r, 1+r.IntN(8), r.IntN(100)).graph(t)
		if w := r.IntN(3 * len(g.Workers)); w < len(g.Workers) {
			g.Workers[w] = Lose(w, g.Workers[w].Name, io.ErrUnexpectedEOF)
		}
		each(g)
	}
}

func TestOfARandomGraphNoBoxesOverlapAndEachLiesInItsWorkersLane(t *testing.T) {
	some(t, func(g *Graph) {
		s, err := draw(g)
		require.NoError(t, err)
		requireOrderly(t, g, s)
	})
}

// requireOrderly checks the geometry of a picture, box by box.
func requireOrderly(t *testing.T, g *Graph, s *sketch) {
	t.Helper()
	require.Len(t, s.lanes, len(g.Workers))
	right := 0
	for i, n := range s.lanes {
		require.Greater(t, n.x, right, "lanes lie beside each other")
		right = n.x + n.w
		for j, text := range n.head {
			require.LessOrEqual(t, textWidth(j, text), n.w)
		}
		for _, row := range n.rows {
			for j, b := range row {
				require.Equal(t, i, b.lane)
				require.GreaterOrEqual(t, b.x-b.w/2, n.x, "in its lane")
				require.LessOrEqual(t, b.x+b.w/2, right, "in its lane")
				if j > 0 {
					require.Greater(t, b.x-b.w/2, row[j-1].x+row[j-1].w/2, "beside its neighbour")
				}
				if !b.bend() {
					require.GreaterOrEqual(t, b.y, s.bands[b.row].top)
					require.LessOrEqual(t, b.y+b.h, s.bands[b.row].bottom)
					for k, text := range b.text {
						require.LessOrEqual(t, textWidth(k, text), b.w, "text lies in its box")
					}
				}
			}
		}
	}
	require.Greater(t, s.w, right)
	for i, band := range s.bands {
		require.Greater(t, s.h, band.bottom)
		require.LessOrEqual(t, band.top, band.bottom)
		require.True(t, i == 0 || s.bands[i-1].bottom < band.top, "rows lie below each other")
	}
	requireComplete(t, g, s)
}

// requireComplete checks that everything of the graph is in the picture, and that data flows
// downwards.
func requireComplete(t *testing.T, g *Graph, s *sketch) {
	t.Helper()
	links := g.Links()
	groups, twins, drawn := map[Kind]map[At]bool{}, map[Kind]int{}, map[*box]bool{}
	group := fold(g, links)
	for at, last := range group {
		if groups[g.node(last).Kind] == nil {
			groups[g.node(last).Kind] = map[At]bool{}
		}
		groups[g.node(last).Kind][last] = true
		require.Equal(t, at.Worker, last.Worker)
	}
	for _, b := range s.boxes {
		twins[b.kind]++
		drawn[b] = true
	}
	for kind, of := range groups {
		if kind == Parameter {
			require.GreaterOrEqual(t, twins[kind], len(of))
		} else {
			require.Equal(t, len(of), twins[kind])
		}
	}
	joined := map[[2]At]bool{}
	for _, l := range links {
		if group[l.From] != group[l.To] {
			joined[[2]At{group[l.From], group[l.To]}] = true
		}
	}
	require.Len(t, s.lines, len(joined))
	for _, l := range s.lines {
		require.True(t, drawn[l.from()] && drawn[l.to()], "both ends are there")
		for i, b := range l.path[1:] {
			require.Equal(t, l.path[i].row+1, b.row, "data flows downwards, row by row")
		}
		if l.across() {
			require.True(t, l.message)
			require.Len(t, l.path, 2)
		}
	}
}

func TestEveryPictureIsXMLWhoseReferencesExistAndTheSameEveryTime(t *testing.T) {
	some(t, func(g *Graph) {
		var b, again bytes.Buffer
		require.NoError(t, g.WriteSVG(&b))
		require.NoError(t, g.WriteSVG(&again))
		require.Equal(t, b.String(), again.String())
		requireXML(t, b.Bytes())
		b.Reset()
		require.NoError(t, g.WriteDOT(&b))
		requireDOT(t, g, b.String())
	})
}

func requireXML(t *testing.T, b []byte) {
	t.Helper()
	ids, refs := map[string]bool{}, map[string]bool{}
	d := xml.NewDecoder(bytes.NewReader(b))
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		for _, a := range e.Attr {
			switch a.Name.Local {
			case "id":
				require.False(t, ids[a.Value])
				ids[a.Value] = true
			case "marker-end":
				refs[strings.TrimSuffix(strings.TrimPrefix(a.Value, "url(#"), ")")] = true
			case "x", "y", "width", "height", "textLength":
				_, err := strconv.ParseUint(a.Value, 10, 31)
				require.NoError(t, err, "%s of %s", a.Name.Local, e.Name.Local)
			}
		}
	}
	for r := range refs {
		require.True(t, ids[r], r)
	}
}

// A checker of the part of Graphviz' language that WriteDOT uses: one statement a line.
var (
	dotValue = `("([^"\\]|\\.)*"|[\w]+)`
	dotList  = `\[\w+=` + dotValue + `(, \w+=` + dotValue + `)*\]`
	dotLine  = regexp.MustCompile(`^\t*((digraph \w+|subgraph cluster_\d+) \{|\}|\w+=` + dotValue + `;|\w+ ` + dotList + `;|(\w+) -> (\w+)( ` + dotList + `)?;)$`)
	dotNode  = regexp.MustCompile(`^\t\t(n\d+_\d+) \[`)
	dotEdge  = regexp.MustCompile(`^\t(\w+) -> (\w+)`)
)

func requireDOT(t *testing.T, g *Graph, dot string) {
	t.Helper()
	nodes, want, edges, depth := map[string]bool{}, 0, 0, 0
	for line := range strings.Lines(dot) {
		line = strings.TrimSuffix(line, "\n")
		if !dotLine.MatchString(line) {
			require.Regexp(t, dotLine, line)
		}
		depth += strings.Count(line[max(0, len(line)-1):], "{")
		if strings.TrimSpace(line) == "}" {
			depth--
		}
		if m := dotNode.FindStringSubmatch(line); m != nil {
			require.False(t, nodes[m[1]])
			nodes[m[1]] = true
		}
		if m := dotEdge.FindStringSubmatch(line); m != nil {
			require.True(t, nodes[m[1]] && nodes[m[2]], line)
			edges++
		}
	}
	for _, w := range g.Workers {
		want += len(w.Nodes)
	}
	require.Zero(t, depth)
	require.Len(t, nodes, want)
	require.Equal(t, len(g.Links()), edges)
}

func TestTheCheckOfDOTNoticesWhatIsWrong(t *testing.T) {
	for _, line := range []string{`	a -> b`, `	a [label="x];`, `	a [label="x" y"];`, `	label=a b;`, `	a b;`, `digraph {`} {
		require.NotRegexp(t, dotLine, line)
	}
}

func TestNamesOfTheNetworkCannotBreakOutOfAPicture(t *testing.T) {
	for _, name := range []string{
		`</text><script>alert(1)</script>`, `"]; } evil [label="`, "a\x00b\x1b[31m\nc\r", "\xff\xfe", `back\`, "層の正規化", "\u202eright to left", strings.Repeat("W", 500), "", "]]>&lt;",
	} {
		s := newScript(2)
		v := s.message(1, name, s.call(0, name, f32(3), s.param(0, 3)))
		s.root(s.call(1, name, f32(), v...))
		s.workers[0].Name = name
		for i := range s.workers {
			s.workers[i].Bound()
		}
		g := s.graph(t)
		g.Workers = append(g.Workers, Lose(2, name, fmt.Errorf("%s", name)))
		drawn, err := draw(g)
		require.NoError(t, err)
		requireOrderly(t, g, drawn)
		var b bytes.Buffer
		require.NoError(t, g.WriteSVG(&b))
		requireXML(t, b.Bytes())
		require.NotContains(t, b.String(), "<script>")
		b.Reset()
		require.NoError(t, g.WriteDOT(&b))
		requireDOT(t, g, b.String())
	}
}

func TestAGraphThatIsTooLargeIsRefusedAsAPictureAndWrittenAsDOT(t *testing.T) {
	s := newScript(6)
	for w := range s.workers {
		v := s.param(w, 1)
		for range MaxNodes - 1 {
			v = s.call(w, fmt.Sprint(len(s.workers[w].Nodes)), f32(1), v)
		}
	}
	g := s.graph(t)
	require.ErrorIs(t, g.WriteSVG(io.Discard), ErrTooLarge)
	require.NoError(t, g.WriteDOT(io.Discard))
	g.Workers = g.Workers[:1]
	require.NoError(t, g.WriteSVG(io.Discard))

	s = newScript(1) // few nodes whose lines pass each other's rows
	old := []value{}
	for range 170 {
		old = append(old, s.call(0, fmt.Sprint(len(old)), f32(1), old...))
	}
	require.ErrorIs(t, s.graph(t).WriteSVG(io.Discard), ErrTooLarge)
}

func TestALongRunOfTheSameSmallFunctionIsOneBox(t *testing.T) {
	chain := func(n int, name string, root int) *sketch {
		s := newScript(1)
		v := s.call(0, "relu", f32(3), s.param(0, 3))
		for i := range n {
			v = s.call(0, name, f32(3), v)
			if i == root {
				s.root(v)
			}
		}
		s.root(s.call(0, "sum", f32(), v))
		d, err := draw(s.graph(t))
		require.NoError(t, err)
		return d
	}
	texts := func(d *sketch) (out []string) {
		for _, b := range d.boxes {
			out = append(out, b.text[0])
		}
		return out
	}
	require.Equal(t, []string{"param 1", "relu", "scale ×5", "sum"}, texts(chain(5, "scale", -1)))
	require.Equal(t, []string{"param 1", "relu", "scale", "scale", "sum"}, texts(chain(2, "scale", -1)), "two are not a run")
	require.Len(t, texts(chain(5, "scale", 1)), 6, "a root stays")
	require.Len(t, texts(chain(5, "relu", -1)), 4, "what reads a parameter stays")
	require.Equal(t, "a very long name of a fu… ×5", texts(chain(5, "a very long name of a function that is applied again and again", -1))[2])
}

func TestParametersOfOneFunctionShareABoxAndThoseOfReadersFarApartHaveSeveral(t *testing.T) {
	s := newScript(1)
	shared := s.param(0, 7)
	x := s.call(0, "linear", f32(3), s.param(0, 3), s.param(0, 3, 3), s.param(0, 4))
	x = s.call(0, "scale", f32(3), x, shared)
	for i := range 6 {
		x = s.call(0, fmt.Sprint("f", i), f32(3), x)
	}
	s.root(s.call(0, "scale", f32(3), x, shared))
	d, err := draw(s.graph(t))
	require.NoError(t, err)
	var params []string
	for _, b := range d.boxes {
		if b.kind == Parameter {
			params = append(params, strings.Join(b.text, "|"))
		}
	}
	slices.Sort(params)
	require.Equal(t, []string{"param 1|f32[7] · 28 B", "param 1|f32[7] · 28 B", "params 2–4|f32[3] · 12 B|f32[3×3] · 36 B|f32[4] · 16 B"}, params)
}

func TestMessagesInACircleWhichOnlyALiarDescribesAreDrawnAllTheSame(t *testing.T) {
	s := newScript(2)
	s.add(0, Node{Kind: Recv, Results: []Type{f32(1)}, Message: 1, Peer: 1})
	s.add(0, Node{Kind: Send, Results: []Type{f32(1)}, Message: 2, Peer: 1}, value{0, Input{}})
	s.add(1, Node{Kind: Recv, Results: []Type{f32(1)}, Message: 2, Peer: 0})
	s.add(1, Node{Kind: Send, Results: []Type{f32(1)}, Message: 1, Peer: 0}, value{1, Input{}})
	g := s.graph(t)
	require.Len(t, g.Links(), 4)
	var b bytes.Buffer
	require.NoError(t, g.WriteSVG(&b))
	requireXML(t, b.Bytes())
}

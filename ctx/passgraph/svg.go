package passgraph

import (
	"bufio"
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strings"
)

// style holds for both kinds of viewers; what is dark stands behind the query.
const style = `
text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:10px;fill:#59636e;white-space:pre}
text.n{font-size:12px;fill:#1f2328}
text.t{font-weight:bold}
.bg{fill:#fff}
.lane{fill:#f6f8fa;stroke:#d0d7de}
.lost{stroke:#cf222e;stroke-dasharray:6 4}
.f{fill:#fff;stroke:#8c959f}
.p{fill:#dafbe1;stroke:#4ac26b}
.s{fill:#fff8c5;stroke:#d4a72c}
.r{fill:#ddf4ff;stroke:#54aeff}
.root{stroke:#8250df;stroke-width:2.5}
.bar{fill:#fb8f44;stroke:none}
.l{fill:none;stroke:#8c959f}
.m{fill:none;stroke:#0969da}
.la{fill:#8c959f}
.ma{fill:#0969da}
@media (prefers-color-scheme:dark){
text{fill:#9198a1}
text.n{fill:#f0f6fc}
.bg{fill:#0d1117}
.lane{fill:#151b23;stroke:#3d444d}
.lost{stroke:#f85149}
.f{fill:#212830;stroke:#656c76}
.p{fill:#12261e;stroke:#2ea043}
.s{fill:#272115;stroke:#bb8009}
.r{fill:#121d2f;stroke:#1f6feb}
.root{stroke:#a371f7}
.bar{fill:#db6d28}
.l{stroke:#656c76}
.m{stroke:#4493f8}
.la{fill:#656c76}
.ma{fill:#4493f8}
}
`

// WriteSVG draws the graph: a lane for each worker, boxes for its functions, parameters and ends of
// messages, data flowing downwards. It looks right on light and on dark pages, and every box and
// line says more when it is pointed at. It fails with ErrTooLarge beyond some thousand nodes.
func (g *Graph) WriteSVG(to io.Writer) error {
	s, err := draw(g)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(to)
	p := &pen{w}
	fmt.Fprintf(w, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n<style>%s</style>\n", s.w, s.h, s.w, s.h, style)
	for _, class := range []string{"la", "ma"} {
		fmt.Fprintf(w, "<marker id=\"%s\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path class=\"%s\" d=\"M0 0.5L8 4L0 7.5z\"/></marker>\n", class, class)
	}
	p.rect("bg", 0, 0, s.w, s.h, 0)
	p.text("n t", margin, margin+12, cut(title(g), (s.w-2*margin)/charWide), charWide, false)
	for _, n := range s.lanes {
		class := "lane"
		if n.lost {
			class += " lost"
		}
		p.rect(class, n.x, s.top, n.w, s.h-s.top-margin, 8)
		for i, t := range n.head {
			p.text(textClass(i, " t"), n.x+n.w/2, s.top+padding+lineHeight*i+10, t, textWidth(i, "x"), true)
		}
	}
	ports := s.ports()
	for _, l := range s.lines {
		p.line(l, s.bands, ports[l])
	}
	for _, b := range s.boxes {
		p.box(b)
	}
	fmt.Fprintln(w, "</svg>")
	return w.Flush()
}

func title(g *Graph) string {
	functions := 0
	for wi := range g.Workers {
		for _, n := range g.Workers[wi].Nodes {
			if n.Kind == Function {
				functions++
			}
		}
	}
	all := trafficOf(g.Links(), func(Link) bool { return true })
	text := fmt.Sprintf("pass %s: %s, %s, %s of %s", idText(g.Pass), plural(len(g.Workers), "worker"), plural(functions, "function"), plural(all.messages, "message"), bytesText(all.bytes))
	if all.back > 0 {
		text += fmt.Sprintf(", %s of gradients back", bytesText(all.back))
	}
	return text
}

// port is where a line begins and ends.
type port struct{ from, to int }

// ports spreads the lines at the edge of a box, in the order of where they lead.
func (s *sketch) ports() map[*line]port {
	at := map[*line]port{}
	for _, b := range s.boxes {
		ins, outs := slices.Clone(b.in), slices.Clone(b.out)
		slices.SortStableFunc(ins, func(l, m *line) int { return cmp.Compare(l.path[len(l.path)-2].x, m.path[len(m.path)-2].x) })
		slices.SortStableFunc(outs, func(l, m *line) int { return cmp.Compare(l.path[1].x, m.path[1].x) })
		for i, l := range ins {
			at[l] = port{at[l].from, b.port(i, len(ins))}
		}
		for i, l := range outs {
			at[l] = port{b.port(i, len(outs)), at[l].to}
		}
	}
	return at
}

func (b *box) port(i, n int) int {
	step := min(portGap, (b.w-2*padding)/n)
	return b.x + (2*i-(n-1))*step/2
}

// pen writes elements.
type pen struct{ w *bufio.Writer }

func (p *pen) rect(class string, x, y, w, h, round int) {
	fmt.Fprintf(p.w, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"%d\"/>\n", class, x, y, w, h, round)
}

// text writes a line whose width no font changes.
func (p *pen) text(class string, x, y int, t string, column int, centred bool) {
	if t == "" {
		return
	}
	width := columns(t) * column
	if centred {
		x -= width / 2
	}
	fmt.Fprintf(p.w, "<text class=\"%s\" x=\"%d\" y=\"%d\" textLength=\"%d\" lengthAdjust=\"spacingAndGlyphs\">%s</text>\n", class, x, y, width, escape(t))
}

func textClass(i int, first string) string {
	if i == 0 {
		return "n" + first
	}
	return "d"
}

var classes = map[Kind]string{Function: "f", Parameter: "p", Send: "s", Recv: "r"}

func (p *pen) box(b *box) {
	class, round := classes[b.kind], 5
	if b.root {
		class += " root"
	}
	if b.kind != Function {
		round = 12
	}
	left := b.x - b.w/2
	fmt.Fprintf(p.w, "<g><title>%s</title>\n", escape(b.hint))
	p.rect(class, left, b.y, b.w, b.h, round)
	if bar := int(b.share * float64(b.w-12)); bar > 0 {
		p.rect("bar", left+6, b.y+b.h-4, bar, 3, 1)
	}
	for i, t := range b.text {
		p.text(textClass(i, ""), b.x, b.y+lineHeight*(i+1)+1, t, textWidth(i, "x"), true)
	}
	fmt.Fprintln(p.w, "</g>")
}

// line goes down: past its bends on curves; to another lane on a track of its own between the rows.
func (p *pen) line(l *line, bands []band, at port) {
	var d strings.Builder
	from, to := l.from(), l.to()
	y := from.y + from.h
	fmt.Fprintf(&d, "M%d %d", at.from, y)
	class := "l"
	if l.message {
		class = "m"
	}
	if l.across() {
		track := bands[from.row].bottom + rowGap/2 + trackHeight*l.track
		turn := min(6, abs(at.to-at.from)/2)
		side := turn
		if at.to < at.from {
			side = -turn
		}
		fmt.Fprintf(&d, "V%dQ%d %d %d %dH%dQ%d %d %d %dV%d", track-turn, at.from, track, at.from+side, track, at.to-side, at.to, track, at.to, track+turn, to.y)
	} else {
		x := at.from
		for i, b := range l.path[1:] {
			next := b.x
			if b == to {
				next = at.to
			}
			top, bottom := bands[l.path[i].row].bottom, bands[b.row].top
			if top > y {
				fmt.Fprintf(&d, "V%d", top)
			}
			if next != x {
				fmt.Fprintf(&d, "C%d %d %d %d %d %d", x, (top+bottom)/2, next, (top+bottom)/2, next, bottom)
			}
			x, y = next, bottom
		}
		fmt.Fprintf(&d, "V%d", to.y)
	}
	fmt.Fprintf(p.w, "<path class=\"%s\" stroke-width=\"%s\" marker-end=\"url(#%sa)\" d=\"%s\"><title>%s</title></path>\n", class, thickness(l.bytes), class, d.String(), escape(l.hint))
}

// thickness grows from 1 to 4 pixels with the logarithm of the bytes.
func thickness(n int64) string {
	kilos := bits.Len64(uint64(max(n, 0)) >> 10)
	return fmt.Sprintf("%d.%d", 1+kilos/10, kilos%10)
}

func abs(n int) int { return max(n, -n) }

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}

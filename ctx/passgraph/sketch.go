package passgraph

import (
	"errors"
	"fmt"
)

// ErrTooLarge says that a graph has more nodes than a picture can show.
var ErrTooLarge = errors.New("the graph is too large for a picture; write it as DOT")

// maxBoxes bounds a picture, with the bends of its lines.
const maxBoxes, maxLanes = 20000, 256

// sketch is a picture before its text: lanes, boxes in them, and lines between these.
type sketch struct {
	lanes []*lane
	boxes []*box // without bends
	lines []*line
	rows  int
	w, h  int
	bands []band // the rows' places
	top   int    // of the lanes
}

// lane is a worker.
type lane struct {
	head []string
	lost bool
	rows [][]*box // by row, from left to right
	x, w int      // its left edge and its width
}

// box is what is drawn for one or more nodes; or, without text, where a line bends on its way past
// a row.
type box struct {
	lane, row, order int
	kind             Kind
	text             []string
	hint             string // all there is to say
	root             bool
	share            float64 // its time, as a share of the longest
	in, out          []*line
	up, down         []*box // the next points of its lines, here or in other lanes
	x, y, w, h       int    // its centre, its top, and its extents
}

func (b *box) bend() bool { return b.kind == 0 }

// line is drawn from box to box, by way of bends.
type line struct {
	path    []*box
	hint    string
	bytes   int64
	message bool
	track   int // of those that leave their lane: how many others run above it below the same row
}

func (l *line) from() *box   { return l.path[0] }
func (l *line) to() *box     { return l.path[len(l.path)-1] }
func (l *line) across() bool { return l.from().lane != l.to().lane }

// draw makes the picture of a graph.
func draw(g *Graph) (*sketch, error) {
	nodes := 0
	for wi := range g.Workers {
		nodes += len(g.Workers[wi].Nodes)
	}
	if nodes > maxBoxes || len(g.Workers) > maxLanes {
		return nil, fmt.Errorf("%w: %s, %d nodes", ErrTooLarge, plural(len(g.Workers), "worker"), nodes)
	}
	s := outline(g)
	s.layer()
	if err := s.bendLines(); err != nil {
		return nil, err
	}
	s.untangle()
	s.place()
	return s, nil
}

// outline makes the boxes and lines of a graph, without places.
func outline(g *Graph) *sketch {
	s := &sketch{}
	links := g.Links()
	group := fold(g, links)
	members := map[At][]At{}
	for wi := range g.Workers {
		s.lanes = append(s.lanes, &lane{head: heading(g, wi, links), lost: g.Workers[wi].Lost != ""})
		for ni := range g.Workers[wi].Nodes {
			at := At{wi, ni}
			members[group[at]] = append(members[group[at]], at)
		}
	}
	boxes := map[At]*box{} // by the last node of a group
	long, params := longest(g), parameters(g)
	for wi := range g.Workers {
		for ni := range g.Workers[wi].Nodes {
			at := At{wi, ni}
			if group[at] != at {
				continue
			}
			b := &box{lane: wi, kind: g.node(at).Kind, root: g.node(at).Root}
			b.describe(g, members[at], params, long)
			boxes[at] = b
			s.boxes = append(s.boxes, b)
		}
	}
	joined := map[[2]*box]*line{}
	for _, l := range links {
		ends := [2]*box{boxes[group[l.From]], boxes[group[l.To]]}
		switch have := joined[ends]; {
		case ends[0] == ends[1]:
		case have != nil:
			have.bytes += l.Bytes
			have.hint = bytesText(have.bytes)
		default:
			joined[ends] = s.connect(ends[0], ends[1], l, linkHint(g, l))
		}
	}
	return s
}

func (s *sketch) connect(from, to *box, of Link, hint string) *line {
	l := &line{path: []*box{from, to}, bytes: of.Bytes, hint: hint, message: of.Message != 0}
	from.out, to.in = append(from.out, l), append(to.in, l)
	s.lines = append(s.lines, l)
	return l
}

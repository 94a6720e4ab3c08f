package passgraph

import (
	"cmp"
	"slices"
)

// Measures, in pixels. Text is of fixed width; the first line of a box is larger than the others.
const (
	charWide, charNarrow = 7, 6 // a column, in lines of 12 and of 10 pixels
	lineHeight           = 14   // of a line of text
	padding              = 10   // left and right of text
	between              = 16   // boxes of a row
	bendBetween          = 10   // a bend and what is beside it
	laneGap              = 28   // lanes
	margin               = 16   // around all
	rowGap               = 26   // rows, where no line leaves its lane
	reachShare           = 16   // pixels to the side for which lines get one more to go down
	trackHeight          = 8    // more of it for each track
	portGap              = 12   // lines at one box
	settles              = 8    // how often the rows are put in place
	straight             = 8    // how much more a bend wants to stay below a bend than a box below a box
	gravity              = 12   // how much more a box wants to be near its neighbours than in the middle of its lane
	titleHeight          = 20 + margin
)

// band is where a row lies.
type band struct{ top, bottom int }

// place gives every box its place.
func (s *sketch) place() {
	for _, b := range s.boxes {
		b.measure()
	}
	heads := 0
	for _, n := range s.lanes {
		n.placeBoxes()
		heads = max(heads, len(n.head))
	}
	x := margin
	for _, n := range s.lanes {
		x = n.moveTo(x) + laneGap
	}
	s.w = max(x-laneGap, margin+minWidth) + margin
	s.top = titleHeight
	s.stack(s.top + heads*lineHeight + 2*padding)
}

// minWidth is that of the title.
const minWidth = 420

func (b *box) measure() {
	for i, t := range b.text {
		b.w = max(b.w, textWidth(i, t)+2*padding)
	}
	b.h = len(b.text)*lineHeight + 10
}

// textWidth is that of a box's or heading's i-th line.
func textWidth(i int, t string) int {
	if i == 0 {
		return columns(t) * charWide
	}
	return columns(t) * charNarrow
}

// placeBoxes gives the boxes of a lane their x, with 0 somewhere: near what they are joined with,
// in order and apart.
func (n *lane) placeBoxes() {
	for _, row := range n.rows {
		spread(row, func(*box) (int, int) { return 0, 1 })
	}
	for range settles {
		for _, row := range n.rows {
			spread(row, func(b *box) (int, int) { return b.wish(true, false) })
		}
		for _, row := range slices.Backward(n.rows) {
			spread(row, func(b *box) (int, int) { return b.wish(false, true) })
		}
	}
	for _, row := range n.rows {
		spread(row, func(b *box) (int, int) { return b.wish(true, true) })
	}
}

// wish is where a box would like to be, and how much: near what it is joined with above, or below,
// or, where there is nothing on that side, on the other; and a little in the middle of its lane.
func (b *box) wish(above, below bool) (x, weight int) {
	if above {
		x, weight = b.pull(b.up, x, weight)
	}
	if below || weight == 0 {
		x, weight = b.pull(b.down, x, weight)
	}
	if weight == 0 {
		x, weight = b.pull(b.up, x, weight)
	}
	if b.bend() && weight > 0 {
		return x / weight, weight * gravity
	}
	weight = weight*gravity + 1
	return x * gravity / weight, weight
}

// pull adds what neighbours want of a box.
func (b *box) pull(to []*box, x, weight int) (sum, total int) {
	for _, n := range to {
		if n.lane != b.lane {
			continue
		}
		w := 1
		if n.bend() && b.bend() {
			w = straight
		}
		x, weight = x+w*n.x, weight+w
	}
	return x, weight
}

// spread puts the boxes of a row as near to their wishes as their order and their widths allow: the
// least squares, by joining neighbours that would overlap to blocks that move together.
func spread(row []*box, wish func(*box) (x, weight int)) {
	type block struct{ sum, weight, boxes int }
	at := func(b block) int { return floor(b.sum, b.weight) }
	var blocks []block
	offset := 0
	offsets := make([]int, len(row))
	for i, b := range row {
		if i > 0 {
			gap := between
			if b.bend() || row[i-1].bend() {
				gap = bendBetween
			}
			offset += (row[i-1].w+b.w+1)/2 + gap
		}
		offsets[i] = offset
		x, weight := wish(b)
		blocks = append(blocks, block{(x - offset) * weight, weight, 1})
		for n := len(blocks); n > 1 && at(blocks[n-2]) > at(blocks[n-1]); n = len(blocks) {
			last := blocks[n-1]
			blocks = blocks[:n-1]
			blocks[n-2].sum += last.sum
			blocks[n-2].weight += last.weight
			blocks[n-2].boxes += last.boxes
		}
	}
	i := 0
	for _, k := range blocks {
		for range k.boxes {
			row[i].x = at(k) + offsets[i]
			i++
		}
	}
}

func floor(a, b int) int {
	if q := a / b; q*b > a {
		return q - 1
	}
	return a / b
}

// moveTo puts the lane's left edge at x and gives its right one.
func (n *lane) moveTo(x int) int {
	left, right := 0, 0
	empty := true
	for _, row := range n.rows {
		for _, b := range row {
			if l, r := b.x-(b.w+1)/2, b.x+(b.w+1)/2; empty {
				left, right, empty = l, r, false
			} else {
				left, right = min(left, l), max(right, r)
			}
		}
	}
	inner := right - left
	for i, t := range n.head {
		inner = max(inner, textWidth(i, t))
	}
	n.x, n.w = x, inner+2*padding
	shift := x + padding + (inner-(right-left))/2 - left
	for _, row := range n.rows {
		for _, b := range row {
			b.x += shift
		}
	}
	return n.x + n.w
}

// stack gives the rows their y, from the top, with room between them for the lines that leave their
// lanes.
func (s *sketch) stack(y int) {
	leaving := make([][]*line, s.rows)
	for _, l := range s.lines {
		if l.across() {
			leaving[l.from().row] = append(leaving[l.from().row], l)
		}
	}
	s.bands = make([]band, s.rows)
	for i := range s.bands {
		height := 0
		for _, n := range s.lanes {
			for _, b := range n.rows[i] {
				height = max(height, b.h)
			}
		}
		for _, n := range s.lanes {
			for _, b := range n.rows[i] {
				b.y = y + (height-b.h)/2
			}
		}
		s.bands[i] = band{y, y + height}
		y += height + rowGap + min(rowGap, s.reach(i)/reachShare) + trackHeight*tracks(leaving[i])
	}
	s.h = y - rowGap + padding + margin
}

// reach is how far to the side a line goes below a row.
func (s *sketch) reach(row int) (most int) {
	for _, n := range s.lanes {
		for _, b := range n.rows[row] {
			for _, d := range b.down {
				if d.lane == b.lane {
					most = max(most, abs(d.x-b.x))
				}
			}
		}
	}
	return most
}

// tracks lets lines that leave their lanes below the same row run above each other where they would
// touch, and says how many do.
func tracks(lines []*line) int {
	left := func(l *line) int { return min(l.from().x, l.to().x) }
	slices.SortStableFunc(lines, func(l, m *line) int { return cmp.Compare(left(l), left(m)) })
	var ends []int
	for _, l := range lines {
		l.track = slices.IndexFunc(ends, func(end int) bool { return end+portGap < left(l) })
		if l.track < 0 {
			l.track = len(ends)
			ends = append(ends, 0)
		}
		ends[l.track] = max(l.from().x, l.to().x)
	}
	return len(ends)
}

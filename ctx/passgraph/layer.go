package passgraph

import (
	"fmt"
	"slices"
)

// layer gives every box its row: below all that it reads. Parameters, and what reads nothing else,
// stand right above their first reader.
func (s *sketch) layer() {
	late := map[*box]bool{}
	for _, b := range s.topological() {
		late[b] = b.kind == Parameter || b.kind == Function && !slices.ContainsFunc(b.in, func(l *line) bool { return l.from().kind != Parameter })
		b.row = 0
		for _, l := range b.in {
			if l.from().kind != Parameter {
				b.row = max(b.row, l.from().row+1)
			}
		}
	}
	order := s.topological()
	for _, params := range []bool{false, true} { // functions first: parameters follow them
		for _, b := range slices.Backward(order) {
			if late[b] && len(b.out) > 0 && (b.kind == Parameter) == params {
				b.row = b.out[0].to().row - 1
				for _, l := range b.out {
					b.row = min(b.row, l.to().row-1)
				}
			}
		}
	}
	s.repeat()
	top := 0
	for _, b := range s.boxes {
		top = min(top, b.row)
	}
	for _, b := range s.boxes {
		b.row -= top
		s.rows = max(s.rows, b.row+1)
	}
}

// topological lists the boxes such that what one reads comes before it. Messages that run in a
// circle, which only a liar describes, are cut where they would close it.
func (s *sketch) topological() []*box {
	missing := map[*box]int{}
	var ready, order []*box
	for _, b := range s.boxes {
		if missing[b] = len(b.in); len(b.in) == 0 {
			ready = append(ready, b)
		}
	}
	for next := 0; len(order) < len(s.boxes); {
		if len(ready) == 0 {
			for missing[s.boxes[next]] <= 0 {
				next++
			}
			missing[s.boxes[next]] = 0
			ready = append(ready, s.boxes[next])
		}
		b := ready[0]
		ready = ready[1:]
		order = append(order, b)
		for _, l := range b.out {
			if missing[l.to()]--; missing[l.to()] == 0 {
				ready = append(ready, l.to())
			}
		}
	}
	return order
}

// near is how many rows below its first reader a parameter's other readers may lie.
const near = 2

// repeat gives a parameter further boxes where its readers are far apart: one for each
// neighbourhood.
func (s *sketch) repeat() {
	for _, b := range slices.Clone(s.boxes) {
		if b.kind != Parameter || len(b.out) < 2 {
			continue
		}
		lines := b.out
		slices.SortStableFunc(lines, func(l, m *line) int { return l.to().row - m.to().row })
		b.out = nil
		at, first := b, lines[0].to().row
		for _, l := range lines {
			if row := l.to().row; row > first+near {
				twin := *b
				at, first = &twin, row
				at.row, at.out = row-1, nil
				s.boxes = append(s.boxes, at)
			}
			l.path[0] = at
			at.out = append(at.out, l)
		}
	}
}

// bendLines lets every line that passes rows of its lane bend there, and puts all into the rows of
// their lanes.
func (s *sketch) bendLines() error {
	all := slices.Clone(s.boxes)
	for _, l := range s.lines {
		from, to := l.from(), l.to()
		if l.across() || to.row <= from.row+1 {
			continue
		}
		path := []*box{from}
		for row := from.row + 1; row < to.row; row++ {
			path = append(path, &box{lane: from.lane, row: row})
		}
		l.path = append(path, to)
		if all = append(all, path[1:]...); len(all) > maxBoxes {
			return fmt.Errorf("%w: more than %d boxes and bends", ErrTooLarge, maxBoxes)
		}
	}
	for _, l := range s.lines {
		for i, b := range l.path[1:] {
			l.path[i].down, b.up = append(l.path[i].down, b), append(b.up, l.path[i])
		}
	}
	for _, n := range s.lanes {
		n.rows = make([][]*box, s.rows)
	}
	for _, b := range all {
		row := &s.lanes[b.lane].rows[b.row]
		b.order = len(*row)
		*row = append(*row, b)
	}
	return nil
}

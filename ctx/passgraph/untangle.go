package passgraph

import (
	"cmp"
	"slices"
)

// sweeps is how often the rows are put in order after their neighbours, down and up in turn.
const sweeps = 16

// untangle orders the rows of every lane so that few lines cross: each box goes to the mean place
// of what it is joined with in the row before; the best order that was met is kept.
func (s *sketch) untangle() {
	best, kept := s.crossings(), s.orders()
	for i := 0; i < sweeps && best > 0; i++ {
		s.sweep(i%2 == 0)
		if n := s.crossings(); n < best {
			best, kept = n, s.orders()
		}
	}
	s.restore(kept)
}

func (s *sketch) sweep(down bool) {
	for i := range s.rows {
		row := i
		if !down {
			row = s.rows - 1 - i
		}
		for _, n := range s.lanes {
			boxes := n.rows[row]
			at := make(map[*box]float64, len(boxes))
			for _, b := range boxes {
				at[b] = b.mean(down)
			}
			slices.SortStableFunc(boxes, func(a, b *box) int { return cmp.Compare(at[a], at[b]) })
			for i, b := range boxes {
				b.order = i
			}
		}
	}
}

// away is how much farther than any place in its own lane another lane lies.
const away = 1 << 16

// mean is the mean place of the box's neighbours above or below; its own where there are none.
func (b *box) mean(above bool) float64 {
	next := b.down
	if above {
		next = b.up
	}
	if len(next) == 0 {
		return float64(b.order)
	}
	sum := 0
	for _, n := range next {
		sum += n.order + (n.lane-b.lane)*away
	}
	return float64(sum) / float64(len(next))
}

func (s *sketch) orders() [][]*box {
	var rows [][]*box
	for _, n := range s.lanes {
		for _, r := range n.rows {
			rows = append(rows, slices.Clone(r))
		}
	}
	return rows
}

func (s *sketch) restore(rows [][]*box) {
	for _, n := range s.lanes {
		for i := range n.rows {
			n.rows[i], rows = rows[0], rows[1:]
			for j, b := range n.rows[i] {
				b.order = j
			}
		}
	}
}

// crossings counts how often lines cross inside of lanes.
func (s *sketch) crossings() (n int) {
	for _, lane := range s.lanes {
		for row := range s.rows - 1 {
			n += crossings(lane.rows[row], len(lane.rows[row+1]))
		}
	}
	return n
}

// crossings counts the pairs of lines below a row that cross: with a tree of counts, over the ends
// in the order of the beginnings.
func crossings(row []*box, below int) (n int) {
	tree := make([]int, below+1)
	total := 0
	for _, b := range row {
		var ends []int
		for _, d := range b.down {
			if d.lane == b.lane && d.row == b.row+1 {
				ends = append(ends, d.order)
			}
		}
		slices.Sort(ends)
		for _, e := range ends { // those before that end farther right
			left := 0
			for i := e + 1; i > 0; i -= i & -i {
				left += tree[i]
			}
			n += total - left
		}
		for _, e := range ends {
			total++
			for i := e + 1; i <= below; i += i & -i {
				tree[i]++
			}
		}
	}
	return n
}

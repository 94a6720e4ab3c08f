package program

import "slices"

// hole is a piece of an arena.
type hole struct{ off, n int }

// space is an arena under planning: what is free below its size, in order and never adjacent.
type space struct {
	holes []hole
	size  int
}

// allocate finds the lowest piece of n bytes, at the end of the arena where there is none.
func (f *space) allocate(n int) int {
	for k := range f.holes {
		h := &f.holes[k]
		if h.n < n {
			continue
		}
		at := h.off
		h.off, h.n = h.off+n, h.n-n
		if h.n == 0 {
			f.holes = slices.Delete(f.holes, k, k+1)
		}
		return at
	}
	at := f.size
	if last := len(f.holes) - 1; last >= 0 && f.holes[last].off+f.holes[last].n == f.size {
		at = f.holes[last].off
		f.holes = f.holes[:last]
	}
	f.size = at + n
	return at
}

// give returns a piece.
func (f *space) give(h hole) {
	if h.n == 0 {
		return
	}
	k, _ := slices.BinarySearchFunc(f.holes, h.off, func(x hole, off int) int { return x.off - off })
	f.holes = slices.Insert(f.holes, k, h)
	if k+1 < len(f.holes) && h.off+h.n == f.holes[k+1].off {
		f.holes[k].n += f.holes[k+1].n
		f.holes = slices.Delete(f.holes, k+1, k+2)
	}
	if k > 0 && f.holes[k-1].off+f.holes[k-1].n == f.holes[k].off {
		f.holes[k-1].n += f.holes[k].n
		f.holes = slices.Delete(f.holes, k, k+1)
	}
}

// life is a piece that is taken, and the last instruction that needs it.
type life struct {
	end int
	hole
}

// lives is a heap, the earliest end first.
type lives []life

func (l lives) Len() int           { return len(l) }
func (l lives) Less(a, b int) bool { return l[a].end < l[b].end }
func (l lives) Swap(a, b int)      { l[a], l[b] = l[b], l[a] }

// Push and Pop are container/heap's.
func (l *lives) Push(x any) { *l = append(*l, x.(life)) }

// Pop takes the last.
func (l *lives) Pop() any {
	last := len(*l) - 1
	x := (*l)[last]
	*l = (*l)[:last]
	return x
}

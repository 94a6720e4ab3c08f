package gemm

import (
	"slices"

	"github.com/weft-project/weft/kernels/cpu/internal/transpose"
)

// work is one product under way, with the memory it packs into.
type work[T Float] struct {
	tile *tile[T]
	a    []T // tiles of rows of a: step by step, the elements of tile.rows rows
	b    []T // a panel of b: Depth rows of tile.cols
	c    []T // a tile of c that would reach over its edge
	turn []T // a transposed product
}

// sized is at least n elements, of any value.
func sized[T Float](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }

// multiply goes through c in blocks that stay in the second cache, through k in pieces of Depth,
// through the columns in panels, and down each panel tile by tile.
func (w *work[T]) multiply(m, n, k int, a, b view[T], c []T, ldc int, add bool) {
	for top := 0; top < m; top += tall {
		for left := 0; left < n; left += wide {
			rows, cols := min(tall, m-top), min(wide, n-left)
			for at := 0; at < k; at += Depth {
				w.block(rows, cols, min(Depth, k-at), a.from(top, at), b.from(at, left), c[top*ldc+left:], ldc, add || at > 0)
			}
		}
	}
}

func (w *work[T]) block(m, n, k int, a, b view[T], c []T, ldc int, add bool) {
	t := w.tile
	direct := w.packA(m, k, a)
	for j := 0; j < n; j += t.cols {
		cols := min(t.cols, n-j)
		panel, ldb := w.packB(m, k, cols, b.from(0, j))
		for i := 0; i < m; i += t.rows {
			from, rs, cs := w.a, 1, t.rows
			if i < direct {
				from, rs, cs = a.data[i*a.rs:], a.rs, a.cs
			} else {
				from = from[(i-direct)*k:]
			}
			to := c[i*ldc+j:]
			if i+t.rows <= m && cols == t.cols {
				t.mul(k, from, rs, cs, panel, ldb, to, ldc, add)
			} else {
				w.edge(k, from, rs, cs, panel, ldb, to, ldc, min(t.rows, m-i), cols, add)
			}
		}
	}
}

// edge computes a tile of which only some rows and columns are c's.
func (w *work[T]) edge(k int, a []T, rs, cs int, b []T, ldb int, c []T, ldc, rows, cols int, add bool) {
	t := w.tile
	w.c = sized(w.c, t.rows*t.cols)
	if add {
		for r := range rows {
			copy(w.c[r*t.cols:], c[r*ldc:][:cols])
		}
	}
	t.mul(k, a, rs, cs, b, ldb, w.c, t.cols, add)
	for r := range rows {
		copy(c[r*ldc:][:cols], w.c[r*t.cols:])
	}
}

// packA packs those tiles of rows that cannot be read where they lie: the last one or two, where
// reading would go past the end. It returns the first row that is packed.
func (w *work[T]) packA(m, k int, a view[T]) (direct int) {
	t := w.tile
	last := len(a.data) - 1 - t.over - (k-1)*a.cs - (t.rows-1)*a.rs // where the last direct tile may begin
	if last >= 0 && m >= t.rows {
		direct = min(last/a.rs, m-t.rows)/t.rows*t.rows + t.rows
	}
	if direct >= m {
		return direct
	}
	w.a = sized(w.a, (m-direct+t.rows-1)/t.rows*t.rows*k+t.over)
	clear(w.a)
	for i := direct; i < m; i++ {
		from, to := a.data[i*a.rs:], w.a[(i-direct)/t.rows*t.rows*k+(i-direct)%t.rows:]
		for p := range k {
			to[p*t.rows] = from[p*a.cs]
		}
	}
	return direct
}

// packB gives a panel of b in rows of tile.cols, or b itself where so few rows of a need it that a
// copy does not pay.
func (w *work[T]) packB(m, k, cols int, b view[T]) (panel []T, ldb int) {
	t := w.tile
	if b.cs == 1 && cols == t.cols && m <= reuse*t.rows {
		return b.data, b.rs
	}
	w.b = sized(w.b, Depth*t.cols)
	if b.cs == 1 {
		for p := range k {
			copy(w.b[p*t.cols:], b.data[p*b.rs:][:cols])
		}
	} else {
		transpose.Matrix(k, cols, w.b, t.cols, b.data, b.cs)
	}
	if cols < t.cols {
		for p := range k {
			clear(w.b[p*t.cols:][cols:t.cols])
		}
	}
	return w.b, t.cols
}

// swapped computes cᵀ = x·y, of p.N×p.M elements, a broad piece at a time, and turns it into c.
func (w *work[T]) swapped(p Product, x, y view[T], c []T) {
	w.turn = sized(w.turn, p.N*broad)
	for at := 0; at < p.M; at += broad {
		m, c := min(broad, p.M-at), c[at*p.LDC:]
		if p.Add {
			transpose.Matrix(p.N, m, w.turn, m, c, p.LDC)
		}
		w.multiply(p.N, m, p.K, x, y.from(0, at), w.turn, m, p.Add)
		transpose.Matrix(m, p.N, c, p.LDC, w.turn, m)
	}
}

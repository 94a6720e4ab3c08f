package gemm

import "slices"

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

// multiply goes through k in pieces of Depth, through the rows in blocks, through the columns in panels, and down each panel tile by tile.
func (w *work[T]) multiply(m, n, k int, a, b view[T], c []T, ldc int, add bool) {
	t := w.tile
	for at := 0; at < k; at += Depth {
		depth := min(Depth, k-at)
		for top := 0; top < m; top += block {
			rows := min(block, m-top)
			x := a.from(top, at)
			direct := w.packA(rows, depth, n, x)
			for j := 0; j < n; j += t.cols {
				cols := min(t.cols, n-j)
				panel, ldb := w.packB(rows, depth, cols, b.from(at, j))
				for i := 0; i < rows; i += t.rows {
					from, rs, cs := x.data, x.rs, x.cs
					if i < direct {
						from = from[i*rs:]
					} else {
						from, rs, cs = w.a[(i-direct)*depth:], 1, t.rows
					}
					to := c[(top+i)*ldc+j:]
					if i+t.rows <= rows && cols == t.cols {
						t.mul(depth, from, rs, cs, panel, ldb, to, ldc, add || at > 0)
					} else {
						w.edge(depth, from, rs, cs, panel, ldb, to, ldc, min(t.rows, rows-i), cols, add || at > 0)
					}
				}
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

// packA packs those tiles of rows that cannot be read where they lie: the last ones, where reading would go past the end, or all, where
// stepping through them would cost more. It returns the first row that is packed.
func (w *work[T]) packA(rows, depth, n int, a view[T]) (direct int) {
	t := w.tile
	if a.cs == 1 || n <= 4*t.cols {
		last := len(a.data) - 1 - t.over - (depth-1)*a.cs - (t.rows-1)*a.rs // where the last direct tile may begin
		if last >= 0 && rows >= t.rows {
			direct = min(last/a.rs, rows-t.rows)/t.rows*t.rows + t.rows
		}
	}
	if direct >= rows {
		return direct
	}
	w.a = sized(w.a, (rows-direct+t.rows-1)/t.rows*t.rows*depth+t.over)
	to := w.a
	for i := direct; i < rows; i += t.rows {
		for r := range t.rows {
			if i+r >= rows {
				for p := range depth {
					to[p*t.rows+r] = 0
				}
				continue
			}
			from := a.data[(i+r)*a.rs:]
			for p := range depth {
				to[p*t.rows+r] = from[p*a.cs]
			}
		}
		to = to[t.rows*depth:]
	}
	return direct
}

// packB gives a panel of b in rows of tile.cols, or b itself where so few rows of a need it that a copy does not pay.
func (w *work[T]) packB(rows, depth, cols int, b view[T]) (panel []T, ldb int) {
	t := w.tile
	if b.cs == 1 && cols == t.cols && rows <= reuse*t.rows {
		return b.data, b.rs
	}
	w.b = sized(w.b, Depth*t.cols)
	switch {
	case b.cs == 1:
		for p := range depth {
			row := w.b[p*t.cols:][:t.cols]
			copy(row, b.data[p*b.rs:][:cols])
			clear(row[cols:])
		}
	case cols == t.cols && b.rs == 1:
		t.transpose(depth, w.b, b.data, b.cs)
	default:
		for j := range t.cols {
			if j >= cols {
				for p := range depth {
					w.b[p*t.cols+j] = 0
				}
				continue
			}
			from := b.data[j*b.cs:]
			for p := range depth {
				w.b[p*t.cols+j] = from[p*b.rs]
			}
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
			for i := range m {
				for j, v := range c[i*p.LDC:][:p.N] {
					w.turn[j*m+i] = v
				}
			}
		}
		w.multiply(p.N, m, p.K, x, y.from(0, at), w.turn, m, p.Add)
		for i := range m {
			row := c[i*p.LDC:][:p.N]
			for j := range row {
				row[j] = w.turn[j*m+i]
			}
		}
	}
}

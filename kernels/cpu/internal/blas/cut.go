package blas

import "sync"

// cutProduct is a product whose c is cut into pieces.
type cutProduct struct {
	g            Gemmer
	p            Product
	rows, cols   int // of a piece
	down, across int // pieces
	s            [3][]float32
	d            [3][]float64
}

var cutProducts = sync.Pool{New: func() any { return new(cutProduct) }}

func (k *cutProduct) hold(g Gemmer, p Product, rows, cols int) {
	k.g, k.p, k.rows, k.cols = g, p, rows, cols
	k.down, k.across = (p.M+rows-1)/rows, (p.N+cols-1)/cols
}

// Piece implements [parallel.Work].
func (k *cutProduct) Piece(from, to int) {
	for ; from < to; from++ {
		i, j := from/k.across*k.rows, from%k.across*k.cols
		p := k.p
		p.M, p.N = min(k.rows, p.M-i), min(k.cols, p.N-j)
		a, b, c := i*p.LDA, j, i*p.LDC+j
		if p.TransA {
			a = i
		}
		if p.TransB {
			b = j * p.LDB
		}
		if k.s[2] != nil {
			k.g.sgemm(p, k.s[0][a:], k.s[1][b:], k.s[2][c:])
		} else {
			k.g.dgemm(p, k.d[0][a:], k.d[1][b:], k.d[2][c:])
		}
	}
}

// halved cuts the larger extent in two as long as pieces have twice so many multiplications, and
// both are not down to a limit.
func (p Product) halved(least, limit int) (rows, cols int) {
	rows, cols = p.M, p.N
	for max(rows, cols) > limit && (Product{M: rows, N: cols, K: p.K}).Work(2*least) == 2*least {
		if rows > cols {
			rows = half(rows)
		} else {
			cols = half(cols)
		}
	}
	return rows, cols
}

// half is half of n, in whole tiles of every library.
func half(n int) int { return (n/2 + 63) &^ 63 }

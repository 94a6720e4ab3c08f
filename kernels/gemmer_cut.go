package kernels

import "sync"

// cutProduct is a product whose c is cut into pieces.
type cutProduct struct {
	g            gemmer
	p            product
	rows, cols   int // of a piece
	down, across int // pieces
	s            [3][]float32
	d            [3][]float64
}

var cutProducts = sync.Pool{New: func() any { return new(cutProduct) }}

func (k *cutProduct) hold(g gemmer, p product, rows, cols int) {
	k.g, k.p, k.rows, k.cols = g, p, rows, cols
	k.down, k.across = (p.m+rows-1)/rows, (p.n+cols-1)/cols
}

// piece implements [pieces].
func (k *cutProduct) piece(from, to int) {
	for ; from < to; from++ {
		i, j := from/k.across*k.rows, from%k.across*k.cols
		p := k.p
		p.m, p.n = min(k.rows, p.m-i), min(k.cols, p.n-j)
		a, b, c := i*p.lda, j, i*p.ldc+j
		if p.transA {
			a = i
		}
		if p.transB {
			b = j * p.ldb
		}
		if k.s[2] != nil {
			k.g.sgemm(p, k.s[0][a:], k.s[1][b:], k.s[2][c:])
		} else {
			k.g.dgemm(p, k.d[0][a:], k.d[1][b:], k.d[2][c:])
		}
	}
}

// halved cuts the larger extent in two as long as pieces have twice so many multiplications, and both are not down to a limit.
func (p product) halved(least, limit int) (rows, cols int) {
	rows, cols = p.m, p.n
	for max(rows, cols) > limit && (product{m: rows, n: cols, k: p.k}).work(2*least) == 2*least {
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

package kernels

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"

	"github.com/weft-project/weft/device"
)

// blasChoice is the outcome of choosing a library for matrix products.
type blasChoice struct {
	gemmer       gemmer
	name, detail string
	err          error // why there is none
}

// chosenBLAS opens the library once per process.
var chosenBLAS = sync.OnceValue(func() blasChoice {
	want, open := os.Getenv("WEFT_BLAS"), blasChoice{err: errors.New("it was not asked for")}
	if want == "" || want == "openblas" {
		open = openBLAS()
	}
	return chooseBLAS(want, open, vectorBLAS())
})

// chosenGemmer is what computes products in this process. The error says why the environment's choice is not there.
func chosenGemmer() (gemmer, error) {
	c := chosenBLAS()
	return c.gemmer, c.err
}

// blasInfo names what computes products, and says where it was found or why another was not.
func blasInfo() (name, detail string) {
	c := chosenBLAS()
	return c.name, c.detail
}

// allGemmers are those that this machine can run, by name, with that of plain loops: what tests compare.
func allGemmers() map[string]gemmer {
	all := map[string]gemmer{"plain": plain{}, "gonum": gonumBLAS{}}
	for _, c := range []blasChoice{vectorBLAS(), openBLAS()} {
		if c.err == nil {
			all[c.name] = c.gemmer
		}
	}
	return all
}

const howToGetOpenBLAS = "install it (Debian, Ubuntu: apt install libopenblas0; Fedora: dnf install openblas; macOS: brew install openblas)"

// chooseBLAS decides by what the environment asks for and by what there is: the first of OpenBLAS, Go on vectors, gonum.
func chooseBLAS(want string, open, vectors blasChoice) blasChoice {
	pure := blasChoice{gemmer: gonumBLAS{}, name: "gonum"}
	none := blasChoice{name: "none"}
	if open.err != nil {
		open.err = fmt.Errorf("OpenBLAS could not be opened: %w; %s", open.err, howToGetOpenBLAS)
	}
	switch {
	case open.err == nil && (want == "" || want == "openblas"):
		return open
	case want == "openblas":
		none.err = fmt.Errorf("%w: WEFT_BLAS=openblas, but %w", ErrNoBackend, open.err)
	case vectors.err == nil && (want == "" || want == "go"):
		if want == "" {
			vectors.detail += "; " + open.err.Error()
		}
		return vectors
	case want == "go":
		none.err = fmt.Errorf("%w: WEFT_BLAS=go, but %w", ErrNoBackend, vectors.err)
	case want == "":
		pure.detail = fmt.Sprintf("pure Go without vectors, ten times slower than OpenBLAS: %v; %v", vectors.err, open.err)
		return pure
	case want == "gonum":
		pure.detail = "pure Go without vectors, as WEFT_BLAS=gonum asks"
		return pure
	default:
		none.err = fmt.Errorf("%w: WEFT_BLAS=%q; expected openblas, go, gonum, or nothing for the best there is", ErrNoBackend, want)
	}
	none.detail = none.err.Error()
	return none
}

// gonumBLAS is BLAS in pure Go.
type gonumBLAS struct{}

func (gonumBLAS) sgemm(p product, a, b, c []float32) {
	if skipsZeros(p, b) {
		plainGemm(p, a, b, c)
		return
	}
	a, b, held := aligned(&p, a, b)
	ta, tb, beta := p.gonum()
	gonum.Implementation{}.Sgemm(ta, tb, p.m, p.n, p.k, 1, a, p.lda, b, p.ldb, float32(beta), c, p.ldc)
	held.release()
}

func (gonumBLAS) dgemm(p product, a, b, c []float64) {
	if skipsZeros(p, b) {
		plainGemm(p, a, b, c)
		return
	}
	a, b, held := aligned(&p, a, b)
	ta, tb, beta := p.gonum()
	gonum.Implementation{}.Dgemm(ta, tb, p.m, p.n, p.k, 1, a, p.lda, b, p.ldb, beta, c, p.ldc)
	held.release()
}

// skipsZeros says that gonum's sums would leave out products of a's zeros with what is not finite in b.
func skipsZeros[T device.Float](p product, b []T) bool {
	rows, cols := p.storedB()
	if p.transB && !p.transA { // those are dot products
		return false
	}
	for i := range rows {
		if !allFinite(b[i*p.ldb:][:cols]) {
			return true
		}
	}
	return false
}

// heldRows are the copies of rows that a product needs.
type heldRows [2]*memory

func (h heldRows) release() {
	for _, s := range h {
		if s != nil {
			s.free()
		}
	}
}

// aligned copies operands of which gonum takes dot products of rows: their sums depend on where in memory rows begin.
func aligned[T device.Float](p *product, a, b []T) (x, y []T, held heldRows) {
	if p.transA || !p.transB {
		return a, b, held
	}
	x, held[0] = alignedRows(a, p.m, p.k, p.lda)
	y, held[1] = alignedRows(b, p.n, p.k, p.ldb)
	p.lda = lineOf[T](p.k)
	p.ldb = p.lda
	return x, y, held
}

func alignedRows[T device.Float](x []T, rows, cols, ld int) ([]T, *memory) {
	line := lineOf[T](cols)
	s := takeScratch((rows*line)*int(unsafe.Sizeof(*new(T))) + lineBytes)
	to := elems[T](s)
	to = to[(-uintptr(unsafe.Pointer(&to[0]))%lineBytes)/unsafe.Sizeof(*new(T)):]
	for i := range rows {
		copy(to[i*line:], x[i*ld:][:cols])
	}
	return to[:rows*line], s
}

const lineBytes = 64

// lineOf is how many elements of whole lines of the cache hold n.
func lineOf[T device.Float](n int) int {
	per := lineBytes / int(unsafe.Sizeof(*new(T)))
	return (n + per - 1) / per * per
}

// cut gives pieces of two of gonum's blocks: from four on it starts goroutines of its own.
func (gonumBLAS) cut(p product) (rows, cols int) {
	if p.n <= 64 {
		return 128, 64
	}
	return 64, 128
}

func (p product) gonum() (ta, tb blas.Transpose, beta float64) {
	ta, tb = blas.NoTrans, blas.NoTrans
	if p.transA {
		ta = blas.Trans
	}
	if p.transB {
		tb = blas.Trans
	}
	if p.add {
		beta = 1
	}
	return ta, tb, beta
}

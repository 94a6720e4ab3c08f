package blas

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/finite"
	"github.com/weft-project/weft/kernels/cpu/internal/scratch"
)

// choice is the outcome of choosing a library for matrix products.
type choice struct {
	gemmer       Gemmer
	name, detail string
	err          error // why there is none
}

// chosen opens the library once per process.
var chosen = sync.OnceValue(func() choice {
	want, open := os.Getenv("WEFT_BLAS"), choice{err: errors.New("it was not asked for")}
	if want == "" || want == "openblas" {
		open = openBLAS()
	}
	return choose(want, open, openVectors())
})

// Chosen is what computes products in this process. The error says why the environment's choice is
// not there.
func Chosen() (Gemmer, error) {
	c := chosen()
	return c.gemmer, c.err
}

// Info names what computes products ("openblas", "go", "gonum", or "none" where the environment
// asks for what there is not), and says where it was found or why another was not.
func Info() (name, detail string) {
	c := chosen()
	return c.name, c.detail
}

// All are the gemmers that this machine can run, by name, and "plain", which is a loop. Tests
// compare them.
func All() map[string]Gemmer {
	all := map[string]Gemmer{"plain": plain{}, "gonum": gonumBLAS{}}
	for _, c := range []choice{openVectors(), openBLAS()} {
		if c.err == nil {
			all[c.name] = c.gemmer
		}
	}
	return all
}

const howToGetOpenBLAS = "install it (Debian, Ubuntu: apt install libopenblas0; Fedora: dnf install openblas; macOS: brew install openblas)"

// choose decides by what the environment asks for and by what there is: the first of OpenBLAS, Go
// on vectors, gonum.
func choose(want string, open, vectors choice) choice {
	pure := choice{gemmer: gonumBLAS{}, name: "gonum"}
	none := choice{name: "none"}
	if open.err != nil {
		open.err = fmt.Errorf("OpenBLAS could not be opened: %w; %s", open.err, howToGetOpenBLAS)
	}
	switch {
	case open.err == nil && (want == "" || want == "openblas"):
		return open
	case want == "openblas":
		none.err = fmt.Errorf("%w: WEFT_BLAS=openblas, but %w", kernels.ErrNoBackend, open.err)
	case vectors.err == nil && (want == "" || want == "go"):
		if want == "" {
			vectors.detail += "; " + open.err.Error()
		}
		return vectors
	case want == "go":
		none.err = fmt.Errorf("%w: WEFT_BLAS=go, but %w", kernels.ErrNoBackend, vectors.err)
	case want == "":
		pure.detail = fmt.Sprintf("pure Go without vectors, ten times slower than OpenBLAS: %v; %v", vectors.err, open.err)
		return pure
	case want == "gonum":
		pure.detail = "pure Go without vectors, as WEFT_BLAS=gonum asks"
		return pure
	default:
		none.err = fmt.Errorf("%w: WEFT_BLAS=%q; expected openblas, go, gonum, or nothing for the best there is", kernels.ErrNoBackend, want)
	}
	none.detail = none.err.Error()
	return none
}

// gonumBLAS is BLAS in pure Go.
type gonumBLAS struct{}

func (gonumBLAS) sgemm(p Product, a, b, c []float32) {
	if skipsZeros(p, b) {
		plainGemm(p, a, b, c)
		return
	}
	a, b, held := aligned(&p, a, b)
	ta, tb, beta := p.gonum()
	gonum.Implementation{}.Sgemm(ta, tb, p.M, p.N, p.K, 1, a, p.LDA, b, p.LDB, float32(beta), c, p.LDC)
	held.release()
}

func (gonumBLAS) dgemm(p Product, a, b, c []float64) {
	if skipsZeros(p, b) {
		plainGemm(p, a, b, c)
		return
	}
	a, b, held := aligned(&p, a, b)
	ta, tb, beta := p.gonum()
	gonum.Implementation{}.Dgemm(ta, tb, p.M, p.N, p.K, 1, a, p.LDA, b, p.LDB, beta, c, p.LDC)
	held.release()
}

// skipsZeros says that gonum's sums would leave out products of a's zeros with what is not finite
// in b.
func skipsZeros[T device.Float](p Product, b []T) bool {
	rows, cols := p.storedB()
	if p.TransB && !p.TransA { // those are dot products
		return false
	}
	for i := range rows {
		if !finite.All(b[i*p.LDB:][:cols]) {
			return true
		}
	}
	return false
}

// heldRows are the copies of rows that a product needs.
type heldRows [2]*scratch.Memory

func (h heldRows) release() {
	for _, s := range h {
		if s != nil {
			s.Free()
		}
	}
}

// aligned copies operands of which gonum takes dot products of rows: their sums depend on where in
// memory rows begin.
func aligned[T device.Float](p *Product, a, b []T) (x, y []T, held heldRows) {
	if p.TransA || !p.TransB {
		return a, b, held
	}
	x, held[0] = alignedRows(a, p.M, p.K, p.LDA)
	y, held[1] = alignedRows(b, p.N, p.K, p.LDB)
	p.LDA = lineOf[T](p.K)
	p.LDB = p.LDA
	return x, y, held
}

func alignedRows[T device.Float](x []T, rows, cols, ld int) ([]T, *scratch.Memory) {
	line := lineOf[T](cols)
	s := scratch.Take((rows*line)*int(unsafe.Sizeof(*new(T))) + lineBytes)
	to := scratch.Elems[T](s)
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
func (gonumBLAS) cut(p Product) (rows, cols int) {
	if p.N <= 64 {
		return 128, 64
	}
	return 64, 128
}

func (p Product) gonum() (ta, tb blas.Transpose, beta float64) {
	ta, tb = blas.NoTrans, blas.NoTrans
	if p.TransA {
		ta = blas.Trans
	}
	if p.TransB {
		tb = blas.Trans
	}
	if p.Add {
		beta = 1
	}
	return ta, tb, beta
}

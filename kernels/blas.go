package kernels

import (
	"fmt"
	"os"
	"sync"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// blasChoice is the outcome of choosing a library for matrix products.
type blasChoice struct {
	gemmer       gemmer
	name, detail string
	err          error // why there is none
}

// chosenBLAS opens the library once per process.
var chosenBLAS = sync.OnceValue(func() blasChoice { return chooseBLAS(os.Getenv("WEFT_BLAS"), openBLAS()) })

// BLASInfo tells which library computes matrix products on the CPU ("openblas", "gonum", or "none" where
// WEFT_BLAS asks for what there is not), and where it was found or why another was not.
func BLASInfo() (name, detail string) {
	c := chosenBLAS()
	return c.name, c.detail
}

const howToGetOpenBLAS = "install it (Debian, Ubuntu: apt install libopenblas0; Fedora: dnf install openblas; macOS: brew install openblas)"

// chooseBLAS decides by what the environment asks for and by what opening OpenBLAS gave.
func chooseBLAS(want string, found blasChoice) blasChoice {
	pure := blasChoice{gemmer: gonumBLAS{}, name: "gonum"}
	none := blasChoice{name: "none"}
	switch want {
	case "":
		if found.err == nil {
			return found
		}
		pure.detail = fmt.Sprintf("pure Go, several times slower than OpenBLAS, which could not be opened: %v; %s", found.err, howToGetOpenBLAS)
		return pure
	case "gonum":
		pure.detail = "pure Go, as WEFT_BLAS=gonum asks"
		return pure
	case "openblas":
		if found.err == nil {
			return found
		}
		none.err = fmt.Errorf("%w: WEFT_BLAS=openblas, but OpenBLAS could not be opened: %w; %s", ErrNoBackend, found.err, howToGetOpenBLAS)
	default:
		none.err = fmt.Errorf("%w: WEFT_BLAS=%q; expected openblas, gonum, or nothing for the best there is", ErrNoBackend, want)
	}
	none.detail = none.err.Error()
	return none
}

// gonumBLAS is BLAS in pure Go.
type gonumBLAS struct{}

func (gonumBLAS) sgemm(p product, a, b, c []float32) {
	ta, tb, beta := p.gonum()
	gonum.Implementation{}.Sgemm(ta, tb, p.m, p.n, p.k, 1, a, p.lda, b, p.ldb, float32(beta), c, p.ldc)
}

func (gonumBLAS) dgemm(p product, a, b, c []float64) {
	ta, tb, beta := p.gonum()
	gonum.Implementation{}.Dgemm(ta, tb, p.m, p.n, p.k, 1, a, p.lda, b, p.ldb, beta, c, p.ldc)
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

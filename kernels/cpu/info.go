package cpu

import (
	"github.com/weft-project/weft/internal/vec"
	"github.com/weft-project/weft/kernels/cpu/internal/blas"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

// BLAS tells what computes matrix products ("openblas", "go" for this module's own kernels on
// vectors, "gonum", or "none" where WEFT_BLAS asks for what there is not), and where it was found
// or why another was not.
func BLAS() (name, detail string) { return blas.Info() }

// Threads is how many threads the kernels of this process use at most: OMP_NUM_THREADS, or as many
// as Go itself (GOMAXPROCS). The number is good with an error, too, which says why OMP_NUM_THREADS
// does not count. It is read once, with the first large computation.
func Threads() (int, error) { return parallel.Threads() }

// NoVectors is what [Vectors] names where there are none.
const NoVectors = "plain"

// Vectors names the processor's vectors on which loops run. They need a build and a processor that
// have them.
func Vectors() string { return vec.Best[float32]().Name }

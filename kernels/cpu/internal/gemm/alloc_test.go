//go:build !race

package gemm

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Under the race detector sync.Pool drops things at random, so that nothing can be said there.

func TestNothingIsAllocatedOnceThePoolIsWarm(t *testing.T) {
	p := Product{TransB: true, M: 70, N: 70, K: 200, LDA: 200, LDB: 200, LDC: 70}
	q := Product{M: 70, N: 10, K: 200, LDA: 200, LDB: 10, LDC: 10}
	a, b, c := make([]float32, 14000), make([]float32, 14000), make([]float32, 4900)
	for _, kern := range kernels32() {
		require.Zero(t, testing.AllocsPerRun(20, func() { kern.Mul(p, a, b, c); kern.Mul(q, a, b, c) }), kern.Name)
	}
}

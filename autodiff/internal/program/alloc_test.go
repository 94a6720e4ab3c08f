//go:build !race

package program

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Under the race detector sync.Pool drops things at random, so that nothing can be said there.

func TestARunOfAProgramAllocatesItsResultsAlone(t *testing.T) {
	u := &Unit{Name: "f"}
	x := u.Input(vectors(64))
	y := apply(t, u, kernels.Unary{Fn: kernels.Neg}, apply(t, u, kernels.Binary{Fn: kernels.Add}, x, x))
	u.Results = []Value{y, x, y}
	p, err := assemble(u, backend(t), ownBuffer)
	require.NoError(t, err)
	in, out := hold(t, [][]byte{make([]byte, 256)}), make([]*device.Buffer, 3)
	defer drop(t, in)
	n := testing.AllocsPerRun(100, func() {
		if err := p.Run(device.Host(), in, out); err != nil {
			t.Fatal(err)
		}
		for _, b := range out {
			_ = b.Release()
		}
	})
	require.LessOrEqual(t, n, 3., "the results' buffers alone")
}

package optim_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/optim"
)

// BenchmarkStep steps many parameters at once.
func BenchmarkStep(b *testing.B) {
	for _, rule := range []optim.Rule{optim.SGD{LR: 0.1}, optim.SGD{LR: 0.1, Momentum: 0.9}, optim.Adam{}} {
		for _, size := range []int{16, 4096} {
			b.Run(fmt.Sprintf("rule=%v/params=100/size=%d", rule.Update(), size), func(b *testing.B) {
				grads := gradients{}
				var ps []*autodiff.Tensor
				for range 100 {
					p := autodiff.Ones(device.Float32, size).RequireGrad()
					ps, grads[p] = append(ps, p), autodiff.Full(device.Float32, 0.1, size)
				}
				o, err := optim.New(rule, ps...)
				require.NoError(b, err)
				b.ReportAllocs()
				for b.Loop() {
					if err := o.Step(grads); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

package cpu_test

import (
	"fmt"
	"testing"

	"github.com/weft-project/weft/kernels"
)

// BenchmarkMove copies 4 MiB in the ways that attention and its gradients do, and as a plain copy.
func BenchmarkMove(b *testing.B) {
	for _, c := range []struct {
		i  kernels.Instr
		in []kernels.Type
	}{
		{kernels.Reshape{Shape: []int{1 << 20}}, []kernels.Type{f32(1024, 1024)}},
		{kernels.Transpose{Perm: []int{1, 0}}, []kernels.Type{f32(1024, 1024)}},
		{kernels.Transpose{Perm: []int{1, 0}}, []kernels.Type{f32(1000, 1048)}},
		{kernels.Transpose{Perm: []int{0, 2, 1, 3}}, []kernels.Type{f32(32, 128, 4, 64)}},
		{kernels.Transpose{Perm: []int{0, 2, 3, 1}}, []kernels.Type{f32(32, 128, 4, 64)}},
		{kernels.Slice{Axis: 1, Start: 100, Stop: 900}, []kernels.Type{f32(1024, 1024)}},
		{kernels.Pad{Axis: 1, Before: 100, After: 100}, []kernels.Type{f32(1024, 824)}},
		{kernels.Concat{Axis: 1}, []kernels.Type{f32(4096, 128), f32(4096, 64), f32(4096, 64)}},
		{kernels.BroadcastTo{Shape: []int{1024, 1024}}, []kernels.Type{f32(1024)}},
		{kernels.BroadcastTo{Shape: []int{1024, 1024}}, []kernels.Type{f32(1024, 1)}},
	} {
		b.Run(fmt.Sprintf("%v/%v", c.i, c.in[0]), func(b *testing.B) {
			b.SetBytes(4 << 20)
			bench(b, 0, c.i, c.in...)
		})
	}
}

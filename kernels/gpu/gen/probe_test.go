package gen

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

func TestProbe(t *testing.T) {
	for _, d := range []device.Dtype{device.Float32, device.Float64} {
		ty := func(s ...int) kernels.Type { return kernels.Type{Dtype: d, Shape: s} }
		var cases []Case
		for f := range kernels.Softplus + 1 {
			cases = append(cases, Case{Instr: kernels.Unary{Fn: f, C: 2}, In: []kernels.Type{ty(1000, 64)}})
		}
		for f := range kernels.Equal + 1 {
			cases = append(cases, Case{Instr: kernels.Binary{Fn: f}, In: []kernels.Type{ty(1000, 63), ty(63)}})
		}
		for _, axes := range [][]int{nil, {0}, {1}, {2}, {0, 2}, {0, 1}} {
			for f := range kernels.ReduceFn(3) {
				cases = append(cases, Case{Instr: kernels.Reduce{Fn: f, Axes: axes}, In: []kernels.Type{ty(100, 96, 1024)}})
			}
			cases = append(cases, Case{Instr: kernels.MaxGrad{Axes: axes}, In: []kernels.Type{ty(100, 96, 1024), reduced(d, axes), reduced(d, axes)}})
		}
		cases = append(cases, Case{Instr: kernels.Transpose{Perm: []int{2, 0, 1}}, In: []kernels.Type{ty(100, 96, 1024)}},
			Case{Instr: kernels.Concat{Axis: 1}, In: []kernels.Type{ty(100, 96), ty(100, 3), ty(100, 64)}},
			Case{Instr: kernels.NonFinite{}, In: []kernels.Type{ty(100, 96)}},
			Case{Instr: kernels.SumSquares{}, In: []kernels.Type{ty(1 << 20), kernels.Type{Dtype: device.Float64}}},
			Case{Instr: kernels.Pad{Axis: 1, Before: 1, After: 2}, In: []kernels.Type{ty(100, 96)}})
		for to := device.Float32; to <= device.Int64; to++ {
			for from := device.Float32; from <= device.Int64; from++ {
				cases = append(cases, Case{Instr: kernels.Cast{To: to}, In: []kernels.Type{{Dtype: from, Shape: device.Shape{100, 4}}}})
			}
			cases = append(cases, Case{Instr: kernels.Fill{Type: kernels.Type{Dtype: to, Shape: device.Shape{5}}, C: 3}})
		}
		var ks []Kernel
		for _, c := range cases {
			code, err := c.Code()
			require.NoError(t, err)
			ks = append(ks, code.Kernels...)
		}
		ptx, _ := Module(ks)
		name := fmt.Sprintf("/tmp/gen/try/%v.ptx", d)
		require.NoError(t, os.WriteFile(name, []byte(ptx), 0o644))
		for _, v := range []string{"11", "12"} {
			for _, arch := range []string{"sm_75", "sm_90"} {
				o, err := exec.Command("/tmp/nv/nvcc"+v+"/nvidia/cuda_nvcc/bin/ptxas", "-arch="+arch, "-v", "-o", "/dev/null", name).CombinedOutput()
				os.WriteFile(name+"."+v+arch, o, 0o644)
				if err != nil {
					t.Errorf("%v", string(o[:min(len(o), 3000)]))
				}
			}
		}
	}
}

func reduced(d device.Dtype, axes []int) kernels.Type {
	o, _ := kernels.Reduce{Fn: kernels.Max, Axes: axes}.Infer([]kernels.Type{{Dtype: d, Shape: device.Shape{100, 96, 1024}}})
	return o[0]
}

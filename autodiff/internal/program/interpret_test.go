package program

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/kernels"
)

// interpret computes an instruction by plain ones, which a backend runs: fused ones step by step,
// views by copies.
func interpret(t testing.TB, i kernels.Instr, in []kerneltest.Tensor) []kerneltest.Tensor {
	t.Helper()
	switch i := i.(type) {
	case kernels.Narrow: // without rounding, so that a pass changes nothing
		out := interpret(t, i.Of, recast(in, device.BFloat16, device.Float32))
		for k := range out {
			if k < len(i.Outs) && i.Outs[k] {
				out[k].Dtype = device.BFloat16
			}
		}
		return out
	case kernels.Map:
		return interpretMap(t, i, in)
	case kernels.MatMulThen:
		c := interpret(t, i.MatMul, in[:2])
		return interpretMap(t, i.Then, append(c, in[2:]...))
	case kernels.Viewed:
		seen := make([]kerneltest.Tensor, len(in))
		for k, x := range in {
			seen[k] = x
			if v := i.In[k]; v != nil {
				seen[k] = look(v, x)
			}
		}
		return interpret(t, i.Of, seen)
	}
	return onBackend(t, i, in)
}

// onBackend computes an instruction, fused or not, by its kernel.
func onBackend(t testing.TB, i kernels.Instr, in []kerneltest.Tensor) []kerneltest.Tensor {
	t.Helper()
	types := make([]kernels.Type, len(in))
	for k, x := range in {
		types[k] = x.Type
	}
	out, err := i.Infer(types)
	require.NoError(t, err)
	got, err := kerneltest.RunOn(t, device.Host(), i, out, in)
	require.NoError(t, err, "%v", i)
	return got
}

func interpretMap(t testing.TB, i kernels.Map, in []kerneltest.Tensor) []kerneltest.Tensor {
	t.Helper()
	var regs []kerneltest.Tensor
	for _, x := range in {
		regs = append(regs, interpret(t, kernels.BroadcastTo{Shape: i.Shape}, []kerneltest.Tensor{x})...)
	}
	for _, s := range i.Steps {
		args := []kerneltest.Tensor{regs[s.Args[0]]}
		if _, ok := s.Op.(kernels.Binary); ok {
			args = append(args, regs[s.Args[1]])
		}
		regs = append(regs, interpret(t, s.Op, args)...)
	}
	var out []kerneltest.Tensor
	for _, o := range i.Outs {
		x := regs[o.Reg]
		if o.Fold != nil {
			x = interpret(t, *o.Fold, []kerneltest.Tensor{x})[0]
		}
		out = append(out, x)
	}
	return out
}

// recast is tensors with one dtype in the place of another.
func recast(ts []kerneltest.Tensor, from, to device.Dtype) []kerneltest.Tensor {
	ts = slices.Clone(ts)
	for k := range ts {
		if ts[k].Dtype == from {
			ts[k].Dtype = to
		}
	}
	return ts
}

// look copies what a view shows.
func look(v *kernels.View, x kerneltest.Tensor) kerneltest.Tensor {
	y := kerneltest.Tensor{Type: kernels.Type{Dtype: x.Dtype, Shape: v.Shape}, V: make([]float64, v.Shape.Elems())}
	for flat := range y.V {
		at, rest := v.Offset, flat
		for k := len(v.Shape) - 1; k >= 0; k-- {
			at += rest % v.Shape[k] * v.Strides[k]
			rest /= v.Shape[k]
		}
		y.V[flat] = x.V[at]
	}
	return y
}

// evaluate computes a unit, each instruction by do; it gives all values.
func evaluate(t testing.TB, u *Unit, in []kerneltest.Tensor, do func(testing.TB, kernels.Instr, []kerneltest.Tensor) []kerneltest.Tensor) []kerneltest.Tensor {
	t.Helper()
	values := make([]kerneltest.Tensor, len(u.Types))
	for k, v := range u.Given {
		values[v] = in[k]
	}
	for _, i := range u.Insts {
		var ins []kerneltest.Tensor
		for _, v := range i.In {
			ins = append(ins, values[v])
		}
		for k, x := range do(t, i.Instr, ins) {
			values[i.Out[k]] = x
		}
	}
	return values
}

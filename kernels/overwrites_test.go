package kernels

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAMapMayOverwriteWhatItHasRead(t *testing.T) {
	x, step := f32(4, 5), func(fn BinaryFn, a, b int) Step { return Step{Op: Binary{Fn: fn}, Args: [2]int{a, b}} }
	sum := &Reduce{}
	for _, c := range []struct {
		why             string
		i               Instr
		in              []Type
		result, operand int
		may             bool
	}{
		{"the only step reads both", Map{x.Shape, []Step{step(Add, 0, 1)}, []Out{{Reg: 2}}}, []Type{x, x}, 0, 1, true},
		{"a repeated operand is read again", Map{x.Shape, []Step{step(Add, 0, 1)}, []Out{{Reg: 2}}}, []Type{x, f32(5)}, 0, 1, false},
		{"a later step reads it", Map{x.Shape, []Step{step(Add, 0, 1), step(Mul, 2, 1)}, []Out{{Reg: 2}, {Reg: 3}}}, []Type{x, x}, 0, 1, false},
		{"the last step reads it", Map{x.Shape, []Step{step(Add, 0, 1), step(Mul, 2, 1)}, []Out{{Reg: 2}, {Reg: 3}}}, []Type{x, x}, 1, 1, true},
		{"only a step that nothing needs reads it later", Map{x.Shape, []Step{step(Add, 0, 1), step(Mul, 0, 1)}, []Out{{Reg: 2}}}, []Type{x, x}, 0, 1, true},
		{"a sum reads it in the end", Map{x.Shape, []Step{step(Add, 0, 1)}, []Out{{Reg: 2}, {0, sum}}}, []Type{x, x}, 0, 0, false},
		{"a copy is written in the end", Map{x.Shape, nil, []Out{{Reg: 0}, {Reg: 1}}}, []Type{x, x}, 0, 1, false},
		{"the second of two results that are one", Map{x.Shape, []Step{step(Add, 0, 1)}, []Out{{Reg: 2}, {Reg: 2}}}, []Type{x, x}, 1, 0, false},
		{"a sum", Map{x.Shape, nil, []Out{{0, sum}}}, []Type{x}, 0, 0, false},
		{"a view", Viewed{Map{x.Shape, []Step{step(Add, 0, 1)}, []Out{{Reg: 2}}}, []*View{nil, Whole(x.Shape)}}, []Type{x, x}, 0, 1, false},
		{"beside a view", Viewed{Map{x.Shape, []Step{step(Add, 0, 1)}, []Out{{Reg: 2}}}, []*View{nil, Whole(x.Shape)}}, []Type{x, x}, 0, 0, true},
	} {
		require.Equal(t, c.may, Overwrites(c.i, c.in, c.result, c.operand), c.why)
	}
}

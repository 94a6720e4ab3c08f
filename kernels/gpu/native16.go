package gpu

import "github.com/weft-project/weft/kernels"

// readsNarrow says whether i, lowered for operands of the types in, reads an operand that is bfloat16 as it lies. The other operands may be bfloat16 too,
// each only as `in` has it: i may be [kernels.Viewed], but not [kernels.Narrow].
func (*backend) readsNarrow(_ kernels.Instr, _ []kernels.Type, _ int) bool { return false }

// writesNarrow says whether i, lowered for operands of the types in, can write a result as bfloat16.
func (*backend) writesNarrow(_ kernels.Instr, _ []kernels.Type, _ int) bool { return false }

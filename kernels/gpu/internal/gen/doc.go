// Package gen writes PTX kernels for what goes element by element: expressions over strided
// operands, with folds ([kernels.Map]), and moves.
//
// [Case.Code] gives the kernels of an instruction, in order, and how much scratch they share;
// [Module] makes one text of any number of kernels. Everything but addresses is a constant in the
// text: extents and strides. It is pure: the same case gives the same text ([Case.Key]), and equal
// cases at other addresses have the same kernels.
//
// Results may lie exactly over operands as [kernels.Overwrites] has it. Sums of floats are carried
// out in float64, in an order that depends on shapes alone; where an operand is folded to few
// results, blocks leave parts in the scratch, and a second kernel folds these.
//
// Float32 may lie in memory as bfloat16 ([kernels.Narrow]): it is computed with as float32, and
// rounded when it is written.
//
// Kernels are for compute capability 7.5 and later, those that round to bfloat16 for 8.0 and later.
// Sources of facts: NVIDIA's PTX ISA 7.8.
package gen

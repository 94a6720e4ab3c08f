// Package gen writes PTX kernels for what goes element by element: expressions over strided operands, with folds ([kernels.Map]), and moves.
// It is pure: the same case gives the same text. Sources of facts: NVIDIA's PTX ISA 7.8.
package gen

// Package expr holds a function's graph while it is built, and differentiates it.
//
// A [Graph] is a Gorgonia graph whose nodes are Weft's instructions. An [Op] is an instruction as
// Gorgonia sees it. [Graph.Reverse] adds the vector-Jacobian product of some results to the graph,
// by the table of gradient rules (rules.go): each rule names one instruction, and broadcasting is
// undone in one place. [Graph.InPieces] rewrites losses of large logits. [Graph.Lower] lists the
// instructions for package program.
//
// The package knows no tensors. Its errors are made by the caller's function, which knows the
// user's line. Gorgonia keeps state in package variables: who builds or differentiates holds
// [Lock].
package expr

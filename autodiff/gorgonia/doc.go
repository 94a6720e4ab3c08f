// Package gorgonia brings models that were built with Gorgonia here, and their parameters back.
//
// [From] makes an [autodiff.Func] of a graph of Gorgonia's own functions; [FromParams] and
// [ToParams] carry the parameters' values there and back. Gorgonia does not export the types of its
// ops: they are known by name, their parameters are read by reflection, and what is not known is
// refused by name. A program that imports both packages gives this one another name:
//
//	import weftgorgonia "github.com/weft-project/weft/autodiff/gorgonia"
package gorgonia

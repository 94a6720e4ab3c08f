// Package nn is layers, losses and initial values over package autodiff.
//
// A layer is a struct of parameters: tensors that belong to nobody and require gradients, so they
// outlive the passes that use them. The New functions make float32 parameters; for float64, or
// other initial values, fill the struct with the initialisers. Every random number comes from the
// source that the caller gives: one seed, one model. Without a source parameters carry
// [ErrNoSource], and a [Dropout] alone seeds itself.
//
// Forward returns no error. Wrong shapes and dtypes give a tensor that carries the error, with the
// caller's file and line, as in package autodiff. Layers are safe for concurrent use; sources of
// random numbers are not.
//
// Most layers hold nothing but parameters. [Dropout] also holds how often it was used, and
// [BatchNorm] running statistics, which each forward in training moves. Those two know training
// from evaluation ([Train], [Eval]), and a forward that a checkpoint computes anew, which drops the
// same elements and moves nothing. [State] names all that a model must keep, [Load] gives it back,
// and [Parameters] are what an optimizer steps.
package nn

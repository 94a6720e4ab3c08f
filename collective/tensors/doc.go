// Package tensors has the operations of a group ([collective.Group]) on tensors. Results are new
// tensors; one that could not be made carries the error, as those of package autodiff do.
//
// # Gradients
//
// Each member calls the operations in a pass of its own, and then [ctx.Backward] with its loss. The
// losses of all members add up: a gradient is that of their sum. So where every member computes the
// same loss of a reduced value, gradients are as many times too large as there are members; [Leave]
// is for that.
//
// An operation is one node on the tape of each member. Before gradients flow, the members tell each
// other which operations their losses depend on. An operation takes part where the loss of any
// member depends on it, and any member wants a gradient from it. Who does not reach it brings
// zeros, at once; who has no loss calls Backward with anything that requires a gradient, such as
// zero times a parameter. A result that nobody uses costs nothing.
//
// All members must call Backward, as often and in the same order, each with a pass in which the
// same operations were called. Where that is not so, or a member cannot go on, it fails on all that
// are still at it.
// Backwards of several goroutines at once need [collective.Scope], as operations do.
//
// Results require gradients in a pass even where no input does here: another member's may. Under
// [ctx.NoGrad] nothing is recorded; members that differ in this get a [collective.MismatchError].
// Outside a pass the results of inputs that require gradients have a backward that fails with
// [ctx.ErrShared].
//
// Min and Max share the gradient among the members that have the value, as autodiff.Max does, and
// among those that have NaN where the result is NaN. The gradient of Prod needs no division: zeros
// are no special case.
//
// # Called functions
//
// Functions that are called in one pass, on all members, may call the operations, too: the losses
// are those of that pass's backwards. There an operation is a message of the pass from each member
// to each other one; sums are made on all that get them.
//
// # Devices
//
// Tensors may lie on any device; what is exchanged goes through the host's memory.
package tensors

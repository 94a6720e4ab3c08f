// Package autodiff is one worker's mathematics: tensors, differentiable functions, and the engine
// that runs them backward.
//
// # Tensors and owners
//
// A [Tensor] is immutable to its users; only an optimizer replaces a parameter's value ([Apply]). A
// tensor belongs to an [Arena] (a pass) or to nobody. What is computed from an arena's tensors
// belongs to that arena and is freed with it; mixing two arenas is an [OwnerError], and
// [Tensor.Copy] takes a value out of one. Nobody's tensors are left to Go's garbage collector.
//
// Mathematics returns no errors. A bad operation gives a tensor that carries the error, with the
// file and line of the caller; what is computed from it carries the same error; [Tensor.Err],
// [Values] and [Backward] return it.
//
// # Functions
//
// A [Func] is a Gorgonia graph ([Graph], [Op]) that is compiled once per set of shapes, dtypes and
// wanted gradients: into one forward program, and one backward for each set of results that have a
// gradient. It keeps a bounded number of sets; see [Func]. A primitive such as [Add] is a function
// of one op. A body only builds: it must not compute with tensors. An op without a gradient rule is
// an error where a gradient would pass through it. Package gorgonia takes Gorgonia's own graphs.
//
// [EmbeddingSparse] gives its table a gradient that is kept as rows, until an optimizer takes them:
// [Tensor.Rows]. What needs all of it gets a dense copy.
//
// # The tape
//
// Calling a function on tensors that require gradients records a [Node]. [Backward] runs the nodes
// in reverse on this worker; package ctx does the same across workers with the same [Task]. A node
// knows where the user called its function, and its errors say so ([NodeError]); with
// Options.Anomaly a gradient that becomes NaN or infinite is one ([AnomalyError]). Hooks
// ([Tensor.OnGrad], [Tensor.OnAccumulated]) run inside the backward, on whichever goroutine drives
// it, of every pass.
//
// A [Checkpoint] keeps the inputs and results of a piece of the forward, and computes the piece
// anew when gradients arrive. What its function computes belongs to a scope, an arena within that
// of the pass.
//
// Everything here is safe for concurrent use, except [Tensor.RequireGrad] and the methods of [Task]
// and [Graph], which have one user at a time.
package autodiff

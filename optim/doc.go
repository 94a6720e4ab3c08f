// Package optim steps parameters: with a [Local] on this worker's tensors, or with a [Distributed]
// where they live.
//
// A [Rule] says how: torch's eight, with torch's formulas, names and defaults, each the options of
// one instruction ([kernels.Update]). Groups of parameters may have rules of their own. An
// optimizer keeps the rule's state per parameter, on the parameter's device. A parameter without a
// gradient in a step is left alone, with its state.
//
// A field of a rule that is zero takes torch's default, and [Zero] is 0 itself: AdamW{WeightDecay:
// optim.Zero} does not decay.
//
// A gradient that no optimizer steps, or none on any owner, is an error of a step: [Local.Step].
//
// Gradients are read from the pass of a step's context, never from tensors, so that concurrent
// passes may step the same parameters: steps on one parameter follow one another, and a forward
// under way keeps the value it began with. A step never writes to a gradient, also when it clips.
//
// A sparse gradient (autodiff.EmbeddingSparse) steps the rows that it has and leaves the others
// alone, with their state: [SGD], [Adagrad] and, as torch's SparseAdam, [Adam] take it; other
// rules, and weight decay, fail with [ErrSparse].
//
// Learning rates, and the [Schedule] that multiplies them, belong to the optimizer's holder and
// travel with each step: the rates of a step are those in force when it is called.
//
// A GPU makes no step by what came of a bad index, and says so, maybe later: at the loss, at the
// next step, or where a parameter or a state is read. Such steps do not count, neither where [Adam]
// and others correct their means nor in a state: the GPU counts what it missed.
//
// What an optimizer keeps can be taken as a [State] and loaded; training then goes on bit for bit.
// It goes by the parameters' names: see [Named].
//
// Workers whose parameters are stepped by others serve [Functions].
package optim

// Package optim steps parameters: with a [Local] on this worker's tensors, or with a [Distributed] where they live.
//
// A [Rule] says how: [SGD], [Adam], [AdamW], with torch's formulas and defaults. An optimizer keeps the rule's state per
// parameter, on the parameter's device. A parameter without a gradient in a step is left alone, with its state.
//
// Gradients are read from the pass of a step's context, never from tensors, so that concurrent passes may step the same
// parameters: steps on one parameter follow one another, and a forward under way keeps the value it began with.
//
// Workers whose parameters are stepped by others serve [Functions].
package optim

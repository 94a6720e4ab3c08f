// Package ctx is one distributed pass: a forward and its backwards that span workers, and what they leave behind.
//
// A [Container] holds the passes of one worker. A [Pass] travels in a context.Context: [From] finds it. A call that leaves
// the worker inside a pass attaches a send function to its tensors ([Pass.AttachSend]); where the tensors arrive a recv
// function is attached to them ([Pass.AttachRecv]). The two share a [MessageID], and gradients take the way back from recv
// to send. [Backward] runs the local engine and, through [Links], the engines of the workers that took part.
//
// FAST mode: every send function of a pass gets exactly one gradient message per backward, so a remote result that the
// loss does not use keeps the backward waiting until its deadline. The error then matches [ErrStalled] and names the send
// functions that waited; workers other than the root give up after nine tenths of the time that is left, so that the root
// hears of it. The send functions are those that the pass has when the backward begins: wait for every call of the pass
// before, as one that is under way may or may not take part.
//
// A call belongs to the pass of the context that it is made with: use the one that Worker.Pass gives to its function.
//
// Gradients lie in the pass, never in the tensors: [Gradients]. Leaving the pass ([Pass.Leave]) frees everything it made on
// every worker that it reached; so does the loss of the worker that opened it. Who was brought into the pass by a worker that
// is lost frees its part. A message for a pass that is gone is answered with [ErrUnknownPass].
//
// Everything is safe for concurrent use. Errors are [Error]s that name the worker and the pass.
package ctx

// Package ctx is one distributed pass: a forward and its backwards that span workers, and what they
// leave behind.
//
// A [Container] holds the passes of one worker. A [Pass] travels in a context.Context: [From] finds
// it. A call that leaves the worker inside a pass attaches a send function to its tensors
// ([Pass.AttachSend]); where the tensors arrive a recv function is attached to them
// ([Pass.AttachRecv]). The two share a [MessageID], and gradients take the way back from recv to
// send. [Backward] runs the local engine and, through [Links], the engines of the workers that take
// part.
//
// # Who takes part
//
// In SMART mode ([Smart], the default) every message says which messages its tensors were computed
// from ([Lineage]), and tells of their past what the receiver cannot know. So the root knows the
// [Plan] of a backward, all messages that bring gradients, before the first of them leaves, and it
// travels with the gradients: exactly what the roots depend on runs, on every worker. Results that
// nobody uses, calls that are still under way and workers that call each other in circles need no
// care. [Fast] mode saves those bytes, and asks the user for that care.
//
// # Failures
//
// A backward that fails anywhere (an error in a function, a lost worker, the deadline, a
// cancellation) fails on every worker that takes part, with a [Failure] that names the cause. Who
// finds it tells all. What other workers have found already is taken back, as long as nobody has
// read it and no more than four backwards have ended there since, so that with RetainGraph a
// backward may be tried again in the same pass.
//
// # Lifetimes
//
// A call belongs to the pass of the context that it is made with: use the one that Worker.Pass
// gives to its function. Its tensors are that pass's or nobody's: those of another pass, or of an
// arena, are refused with an [autodiff.OwnerError], which says what to do.
//
// Gradients lie in the pass, never in the tensors: [Gradients]. Leaving the pass ([Pass.Leave])
// frees everything it made on every worker that it reached; so does the loss of the worker that
// opened it. Clean-ups are told again until they arrive; whoever misses them asks the opener when a
// third of its lease ([Config].Lease) is over, and frees its part without an answer when the lease
// is. A message for a pass that is gone is answered with [ErrUnknownPass].
//
// Everything is safe for concurrent use. Errors are [Error]s that name the worker and the pass.
package ctx

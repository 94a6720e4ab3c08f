// Package refs counts references to remote values: who may still reach a value, so that it is freed
// when nobody can, and not before. It is a state machine without I/O, clock or goroutine, one
// [Machine] per worker: the worker's shell tells it what happened, and then does what
// [Machine.Actions] says. A Machine is not safe for concurrent use.
//
// # The protocol
//
// A value stays at its owner, which counts the shares that others have in it. A worker has a share
// as a [Hold]. It gets one by asking for the value to be made ([Machine.Create]; the owner counts
// it when that call arrives), from the owner in a message (the owner counts it when it sends it),
// or from another holder, the parent: then it asks the owner to count a claim of its own (Fork),
// and tells the parent when the owner has answered (Accept). It gives the hold back by telling the
// owner (Delete). Hence
//
//   - G1: the owner is told of every hold that is given back, or loses the worker that has it.
//   - G2: a parent's hold is not given back before the owner has confirmed the child's.
//
// A message that carries shares may be lost, and late. Who sent it, and gave up, asks for them back
// (Recall); a share that was recalled before it arrived never arrives. Who gave up waiting for an
// answer that may carry shares says so (Abandon), and the callee asks them back.
//
// # Loss, delay, duplicates
//
// Control messages are sent until they are answered, or their receiver is lost; they may arrive in
// any order and any number of times. Each is about a number that its sender, or its receiver, drew
// for that one pair: claims, shares and tickets are counted from 1. A receiver remembers which
// numbers it has seen, as runs, and never takes one twice.
//
// # What the loss of a worker does
//
// Links are lost at both ends. A lost worker never comes back as the same [Node].
//
//   - What it held is not counted any more, and values that only it held are freed.
//   - Holds in its values that are not confirmed fail, and nobody waits for shares that go to it.
//   - Shares under way from it, that have arrived, depend on the owner alone: it answers OK where
//     it still has the value when the child's claim comes, thanks to anybody's hold, and Gone where
//     it has not. Such a hold is either confirmed and safe, or [Denied] with [ErrGone].
//
// As long as no link among owner, parent and child is lost, no claim is denied, and no value is
// freed while a hold, or a share on its way that is not recalled, refers to it.
package refs

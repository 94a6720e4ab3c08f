// Package outer trains one model over slow links: workers make many inner steps alone, and exchange
// what came of them now and then. It is DiLoCo (Douillard et al., 2023, arXiv 2311.08105), and
// Streaming DiLoCo (2025, arXiv 2501.18512) with Fragments, Delay, Mix and narrow wires.
//
// Each worker steps its own parameters by an optimizer of its own, and then calls [Loop.Step]. The
// loop keeps the synchronised values, the same bits on all members of the group, and a momentum.
// After Every inner steps the outer gradient, synchronised values minus the worker's, is averaged
// over the workers and stepped by SGD with Nesterov momentum. The worker's parameters become the
// new values, or a mix with its own. What inner optimizers keep stays with their worker.
//
// # Workers of different speed
//
// A mean is weighted by the work since the exchange of that fragment before: steps, or rows
// ([Loop.StepRows]). Who has made none weighs nothing. Without FirstCalls each worker makes the
// same number of steps between exchanges, and the fast wait for the slow. With FirstCalls the first
// that has made its steps calls the others, who join after the inner step that they are in, with
// what they have made. So a worker at half speed brings half the steps at half the weight, and
// nobody waits for longer than one inner step of another. All make the same exchanges in the same
// order.
//
// # Losses and newcomers
//
// [Each] is the loop of a worker under weft run. Who is lost is left out, and nothing is lost but
// what it had not exchanged. Who comes gets parameters, momentum and position. In a group of your
// own a loss fails the exchange on all others, with an [ExchangeError] around the
// [collective.LostError]; it is made at the next step after [Loop.Regroup] on the group's next
// generation. A newcomer calls [New] then. Who has missed a result gets it there.
//
// # Failures
//
// An exchange is applied on all members or on none, unless one is lost meanwhile. One that failed
// is due at the next step. Where one brings a number that is not finite all get a [DivergedError]
// that names it (under Each it alone does); that one calls [Loop.Rewind].
//
// # Concurrency and memory
//
// One goroutine at a time uses a Loop, and nobody else writes to the parameters while a method
// runs. They are of float32. A loop takes 8 bytes for each on the host, 4 while an exchange is
// under way, and 16 where the wire is narrow.
package outer

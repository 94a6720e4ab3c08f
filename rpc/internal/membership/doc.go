// Package membership is who else is of the job, as one worker knows it, and the worker's links with
// them.
//
// [Members] joins a world, static or dynamic, and then keeps the peers: it takes links that greet,
// dials when a link is needed, passes news on, and tells watchers who comes and goes. What it does
// is decided by package roster, a state machine; Members is the shell around it, with a lock of its
// own. What depends on the worker, such as answering requests, is in [Shell].
//
// [Registry] is the worker's part in the job's store: its claims of a rank and a name, and what it
// reads there of the others. A claim of a lost worker is marked, so that it can come back.
package membership

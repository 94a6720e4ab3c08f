// Package rpc is calls between workers: typed functions, futures, references to remote values, and
// who is there.
//
// [Define] declares a function with Go types for argument and result; both may hold tensors and
// [RRef]s anywhere. A worker serves the functions that its [Config] lists, and no others: no code
// travels. [Join] makes a [Worker] out of a store, a rank and a world size (or Config.Dynamic, for
// a world in which workers come and go; [Worker.Peers] tells who is there); it returns when it is
// linked with the workers that it watches. Links with others are made by the first call. The worker
// travels in the context ([Worker.Context], [Worker.Pass]), so that a function is called with
//
//	sum, err := Add.Call(c, "worker1", Pair{t1, t2})
//
// What would be lost on the way makes a declaration an error, which Join and calls report: fields
// that are not exported, and those of which the CBOR library leaves one out. Fields with the tag
// `cbor:"-"` stay, and types that marshal themselves travel as they say. A result that cannot
// travel whole can be kept where it is (Remote). References that arrive are the receiver's: release
// them, or leave them to the garbage collector; so are those that a function returns still the
// function's. They are confirmed by their owners before the function runs, or the call returns. A
// value is dropped when nobody refers to it any more; what a lost worker held is dropped with it.
// [Worker.Leave] gives back what this worker still holds, and reports with [ErrLeaked] what is held
// when its context ends first. Package refs has the protocol.
//
// Inside a pass the tensors of a call are recorded, so that [ctx.Backward] finds its way back
// through it. A call's deadline is the callee's deadline, and cancelling its context cancels the
// callee's, whose cause is a [CancelError].
//
// Tensors land at the callee on the device that the caller's device map says; results and gradients
// take the reversed map. A tensor that arrives inside a pass belongs to it, otherwise to nobody.
//
// A function declared with [DefineAsync] may give a [Future] in place of its result; [DefineMethod]
// declares a function on what a reference refers to. A worker runs a bounded number of calls at a
// time, its peers in turns, and refuses what is beyond with [ErrBusy]. A call's time is bounded by
// [WithTimeout], by its context, or by default by [Config].
//
// Errors are [Error]s that name the worker, the peer and the function; what went wrong at the peer
// is a [RemoteError] that matches the sentinels of Weft it matched there. A worker that falls
// silent or dies fails every call to it with [ErrPeerLost]. A handler that panics answers with
// [ErrPanic]; nothing that a peer sends ends this process.
//
// Everything is safe for concurrent use.
package rpc

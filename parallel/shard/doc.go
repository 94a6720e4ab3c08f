// Package shard trains one model on several workers, each of which keeps a shard of its parameters,
// gradients and optimizer state: FSDP, or ZeRO stage 3 (Rajbhandari et al., arXiv:1910.02054).
// ZeRO stage 1 and hybrid sharding are options.
//
// [New] cuts the parameters of each layer over a group. From then on they have values only inside
// [Shards.Layer] and [Shards.With], which gather a layer before it is used, gather the next one
// meanwhile, and let go of it afterwards. The backward gathers layers again, the last one first. So
// the functions of a layer do not keep its parameters, and nothing is computed twice.
//
// [Shards.Backward] gives the gradients of this rank's shards, of the mean over all rows of all
// ranks. An optimizer of [Shards.Params] steps it, and keeps state for it alone. What all ranks
// together hold has the same bits as with parallel.Replicate and the same optimizer, whose rules go
// element by element.
//
// # What all ranks call
//
// All ranks make the same forwards, each of which runs layers in ascending order, and the same
// backwards. A layer that a rank leaves out costs its gathering. One that comes again, or that
// comes before the last one, begins another forward, as does what follows [Shards.Backward] or
// [Shards.Finish]. A rank without rows calls [Shards.Skip] in place of a forward. Ranks that do not
// do the same get a collective.MismatchError, and nothing goes well with these shards any more; or
// they wait for one another until a deadline.
//
// # Failures
//
// A step fails on all ranks or on none, unless a worker is lost. Where a gathering fails Layer
// gives a tensor with the error. Then, and wherever a forward fails, go on to Backward with it: all
// ranks get a parallel.FailureError that names the rank. A lost worker is named by a
// collective.LostError.
//
// # Concurrency and memory
//
// The methods of Shards are called by one goroutine at a time. What they have under way uses scopes
// of their own, so that the group's other operations need no order with it. Gathered values belong
// to the Shards; gradients belong to the arena of the loss.
package shard

// Package collective lets a group of workers do things together: sum arrays, gather them, wait for
// one another.
//
// [Open] makes a [Group] of workers that are joined already (package rpc); its members alone call
// it. [Init] joins, too, and gives the group of all. An operation is called by all members; it ends
// on all of them, with a result or an error.
//
// # What goes with what
//
// Operations match by key: the n-th call of one member is that of the others. Goroutines that call
// at once name their calls with [Scope], and then no order between them is needed. Members that
// call different things get a [MismatchError] with both calls and their lines; the group lives on.
//
// Beside them [Send] and [Recv] go from one member to another, with tags.
//
// # Same bits
//
// A sum is made once, in the order of ranks, and copied. So all members get the same bits, and the
// same ones for every algorithm, lane and size. A [Way] may have an order of its own, as NCCL has.
//
// # Failures
//
// A member that is lost or leaves ends the group: what is pending and what comes fails on all with
// a [LostError] that names it. [Group.Without] makes the next generation of those that are left,
// and [Group.With] one with newcomers, which [Enlist]; the job's store confirms one membership.
//
// A deadline is the earliest of all members': the operation fails on all with a [LateError] that
// names who has not come. Cancelling a context fails that operation on all.
//
// # Concurrency and memory
//
// A Group is safe for concurrent use. Slices that are given to an operation are read or written
// until it returns, and not after. Buffers that are handed around (AllReduced, AllGathered and the
// like) are read also after that, where others have references to them. What others send ahead is
// bounded in number and in bytes.
package collective

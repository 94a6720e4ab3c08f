// Package rdzv is the rendezvous: which nodes take part in a job, with which rank, and what becomes
// of the others.
//
// # Who decides
//
// One of the nodes leads. The others tell it what they want in messages of a few hundred bytes
// (join, I am alive, I leave, a worker failed, I am done), and it takes them in batches.
// [State.Decide] is the whole of its judgement: a state machine without I/O or clock. What it
// decides goes to each node in an answer of its own, which holds that node's ranks and the sizes of
// the world and nothing about other nodes, and to all in a summary of a few dozen bytes that they
// watch. So a round of N nodes costs O(N) messages of bounded size, where torchrun's nodes each
// read and write the whole state.
//
// Time is the leader's own. It counts from when it last heard of a node, and compares no clocks; a
// leader that takes over begins to count anew. A leader that is silent is replaced by another node:
// the state lies in the store.
//
// # Rounds
//
// A round is a set of nodes with their ranks. It forms when there are Max nodes, or Min and the
// last call has passed. A node that is lost or leaves, and one that comes while there is room,
// begin the next round: who takes part already stays, with its rank as long as that is less than
// the number of nodes; newcomers get the ranks that became free. Nodes beyond Max are redundant:
// they are kept, and step in when there is room. Many who come one after another come in together,
// and a round that forms because somebody is lost waits for a word of whoever has been silent for
// nearly as long.
//
// A node's worker that fails is replaced in its place, or by a new round, as the job's policy says,
// as long as the job's one budget of restarts lasts. The job is over when every node of a round is
// done, when somebody closes it, and when there have been too few nodes for the time of a join.
// Closing is the only thing that ends it for all: who leaves, leaves alone.
//
// # A store that loses all
//
// One that lies in a machine's memory is empty when that machine is started again. What begins
// there is another rendezvous, with a number of its own in every word of its leaders: who was in
// the one before joins it, and brings how far that had come ([Past]), so that rounds and epochs go
// on growing for workers that run, and the restarts of the job are counted on. Those of the last
// round keep their ranks if they come before the first one here.
//
// # From outside
//
// [Look] and [Follow] show who is in, waits, is redundant, or has gone, since when and why, to
// somebody who takes no part: the leader writes its state for them, at most once in a beat, and the
// last 64 whose part has ended are in it. When each node was heard of changes all the time and is
// not written; that one is late with its word is, and so is how long a round waits. A node that is
// back, by its name or from the same address, stands in one place. They write nothing.
//
// # Contract
//
// A State is owned by one goroutine. What comes from the store is checked before it is used: sizes
// and numbers are bounded, and a state or message that cannot be right is [ErrCorrupt], never code
// that runs.
//
// A [Rendezvous] is safe for concurrent use and owns its goroutines until Leave. While its store
// cannot be reached it waits and says so in the log, and blames nobody for the silence; after a
// minute, or four times Config.Silence, it ends with [ErrNoStore].
package rdzv

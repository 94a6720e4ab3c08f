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
// Time is the leader's own: it compares no clocks. A leader that is silent is replaced by another
// node, as the state lies in the store; that one begins to count anew.
//
// # Rounds
//
// A round is a set of nodes with their ranks. It forms when there are Max nodes, or Min and the
// last call has passed. A node that is lost or leaves, and one that comes while there is room,
// begin the next round: who takes part already stays, with its rank as long as that is less than
// the number of nodes; newcomers get the ranks that became free. Nodes beyond Max are redundant:
// they are kept, and step in when there is room.
//
// A node's worker that fails is replaced in its place, or by a new round, as the job's policy says,
// as long as the job's one budget of restarts lasts. The job is over when every node of a round is
// done, when somebody closes it, and when there have been too few nodes for the time of a join.
// Closing is the only thing that ends it for all: who leaves, leaves alone.
//
// A store that lost all begins another rendezvous, which goes on where the last one ended: [Past].
// [Look] and [Follow] show how things stand to somebody who takes no part.
//
// # Contract
//
// A State is owned by one goroutine. What comes from the store is checked before it is used: sizes
// and numbers are bounded, and a state or message that cannot be right is [ErrCorrupt].
//
// A [Rendezvous] is safe for concurrent use and owns its goroutines until Leave. While its store
// cannot be reached it waits and says so in the log, and blames nobody for the silence; after a
// minute, or four times Config.Silence, it ends with [ErrNoStore].
package rdzv

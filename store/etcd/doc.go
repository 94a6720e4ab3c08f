// Package etcd is a store.Store in an etcd cluster, for jobs whose store must outlive any one
// machine.
//
// [Dial] makes one; [Open] makes one from a URL, as a scheme of store.OpenConfig:
//
//	etcd://h1:2379,h2,h3/jobs/a?rank=0&world_size=4
//
// # What lies in etcd
//
// All keys start with the configured prefix P. Everything a store has can be removed with: etcdctl
// del --prefix P/
//
//	P/v/<key>                  a value
//	P/q/<len>/<key>/<number>   what is in a queue, its numbers in hexadecimal
//	P/t/<key>                  the last number of a queue; it stays when the queue is empty
//	P/r/<lease>/<n>            receipts
//	P/l, P/l/<lease>           the lease of all that, and who has it open, where Config.Lease is set
//
// # Contract
//
// It is that of package store. Every change is one transaction that happens once or not at all: it
// leaves a receipt, and a client that gets no answer looks for it. So every operation is repeated
// until its deadline, also those that are not safe to repeat, and [store.ErrUncertain] remains for
// a change whose deadline comes, or whose context is cancelled, between question and answer.
// Receipts hang on leases: they are gone when the store is closed, or 10 minutes after its process
// has died.
//
// Reads are linearizable; those of many keys are of one revision. Waiting is by etcd's watches from
// the revision of a read, so nothing is missed, also not over a lost member; history that is
// compacted meanwhile costs a new read and, in a Watch, a Change with Dropped -1.
//
// Changes of a value are optimistic: they take one trip for a new key and two for an old one, and
// more where others change it meanwhile. Of waiting Pops any may be served next.
//
// # Limits
//
// A request is at most 1.5 MiB, and a MultiSet at most 127 keys, unless etcd is started with more:
// --max-request-bytes, --max-txn-ops. Beyond that operations fail with ErrTooLarge. A cluster whose
// disk quota is used up gives ErrFull. etcd keeps old values until it compacts its history: let it
// (--auto-compaction-retention).
package etcd

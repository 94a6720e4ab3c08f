// Package transport carries messages between the workers of a job.
//
// A [Network] makes links: [New] over the wire, package simnet in memory, for tests. A [Link] joins
// two workers and carries many streams. A [Stream] carries messages both ways, in order, and serves
// one call. Opening a stream sends nothing. The last message of a direction says so (End), so a
// call is two messages. Large tensors travel beside the messages, by lanes, and delay none.
//
// Both ends of a link belong to the job: nobody gets one without the job's token or certificates
// ([Identity]). This package is the face of those below internal; docs/design.md names them.
//
// # Who owns what
//
// Send borrows the message and its buffers. On [LaneLocal] it keeps references to the large ones
// while the receiver reads them in place, and on [LaneBulk], where it gives up, while a write is
// stuck: the sender may write such a buffer only where it is [device.Buffer.Exclusive]. The
// receiver cannot write there, but can see what is written there later (Config.LendCopies prevents
// that). On [LaneCUDA] tensors are copied within the GPU, in the order of its work, and Recv may
// return before the copies end. The caller of Recv owns one reference to each buffer of the
// message; it may be [device.Buffer.ReadOnly]. A Recv that fails has released all it had.
//
// Finish every stream that you open or accept: CloseSend and Recv up to io.EOF, or Reset. Reset
// does nothing to a finished stream, so `defer s.Reset(nil)` is right after every Open and Accept.
//
// # Concurrency
//
// Networks, listeners and links are safe for concurrent use. A stream takes one sender and one
// receiver at a time, which may be two goroutines. Anybody may call Reset and Context at any time.
//
// # Crowds
//
// Peers that have not proved themselves hold one of few places; hosts of known members
// ([Acquainted]) have places of their own. A refused dial is repeated for up to five seconds, and
// then fails with [ErrBusy]. LaneLocal is for one user's processes, and root's.
//
// # Errors
//
// A stream's failure harms no other stream, and a link's failure no other link. After any error of
// Send or Recv but io.EOF, Reset the stream. What a peer sends is checked against [Limits] before
// memory is set aside for it. When a link is gone, what has arrived may still be received; all else
// fails with its Err.
package transport

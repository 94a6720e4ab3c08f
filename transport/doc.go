// Package transport carries messages between the workers of a job.
//
// A [Network] makes authenticated links: [New] over the wire, and package simnet in memory, for tests. A [Link]
// joins two workers and carries many [Stream]s; a stream carries [Message]s both ways, in order, and serves one
// call. To open a stream sends nothing, and a message that is the last says so itself ([Message.End]), so a call is two
// messages. Large tensors travel beside the messages, by the lanes that the link has ([Link.Lanes]), and delay none. Both ends of a link belong to the job: nobody without its token, or its certificates ([Identity]), gets
// one.
//
// # Who owns what
//
// Send borrows the message and its buffers. On LaneLocal it keeps references to the large ones for as long as the receiver reads
// them where they are: who has sent a buffer writes it only where it is [device.Buffer.Exclusive]. The receiver cannot write them, and sees no other memory; what is
// written there later it can see ([Config.LendCopies]). On LaneCUDA tensors are copied
// within the accelerator, in the order of its work: Recv gives buffers whose copies have been asked for, and may be under way. Recv gives its caller every buffer of
// the message, with one reference each, which may be [device.Buffer.ReadOnly]; when it fails it has released what it had allocated. Who opens or accepts a stream must finish it:
// CloseSend and Recv up to io.EOF, or Reset. Reset does nothing to what is finished already, so `defer s.Reset(nil)` is
// right after every Open and Accept. What is not finished holds one of the peer's [Config.MaxStreams].
//
// # Concurrency
//
// Networks, listeners and links are safe for concurrent use. A stream takes one sender and one receiver at a time, which
// may be two goroutines; Reset and Context may be called at any time by anybody.
//
// # Crowds
//
// Anybody can begin a handshake with a listener, or connect to its sockets. Who has not proved itself holds one of few places, for
// seconds; when they are all taken, the next one gets that of the oldest of the host, or process, that holds the most. Hosts where
// members are known ([Acquainted], and who has had a link) have places of their own. A dial that is refused all the same is made again
// for up to five seconds, and fails with [ErrBusy]. Where the job has a token, members mark their dials, and in a crowd a listener answers
// no others. LaneLocal is for processes of one user, and root's.
//
// # What happens on error
//
// A stream's failure harms no other stream, and a link's failure no other link. When Send or Recv was interrupted by its
// context, or failed for any reason but io.EOF, the stream cannot go on and is to be Reset. What a peer sends is
// checked against [Limits] before memory is set aside for it; where too much waits that nobody receives, the stream that
// holds the most is reset; a message that breaks the rules is a [FrameError], and its
// stream is reset; where a peer breaks the rules of the link, such as its credit, the link ends. When a link is gone, what has
// arrived may still be received, and everything else on it fails with the error that [Link.Err] gives.
package transport

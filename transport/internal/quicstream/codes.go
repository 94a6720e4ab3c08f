package quicstream

// With one of these a connection is closed.
const (
	CodeClosed = 0
	CodeBreach = 2
	CodeBusy   = 3 // the dialler may try again
)

// What both ends of a connection keep to.
const (
	Streams      = 256 // one-way streams that a peer may have open at a time
	ResetCode    = 1   // of streams
	FrameUrgency = 0   // the kept stream goes before tensors
)

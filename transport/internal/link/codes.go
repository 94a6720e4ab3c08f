package link

// Code and reason with which a connection is closed.
const (
	codeClosed = 0
	codeBreach = 2
	codeBusy   = 3 // the dialler may try again
)

const (
	haulStreams  = 256 // one-way streams that a peer may have open at a time
	resetCode    = 1   // of streams
	frameUrgency = 0   // the kept stream goes before what is hauled
)

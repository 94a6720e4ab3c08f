package wire

// The lanes of a link: ways by which its bytes travel. Every link has LaneQUIC.
const (
	LaneQUIC  = "quic"  // everything, over QUIC
	LaneCUDA  = "cuda"  // tensors on a GPU that both ends use, within it
	LaneLocal = "local" // both ends on one host: frames over a unix socket, tensors in shared memory
	LaneBulk  = "bulk"  // large tensors over several TLS connections
)

// LaneNames are all lanes, in order of preference; LaneQUIC is the last.
func LaneNames() []string { return []string{LaneCUDA, LaneLocal, LaneBulk, LaneQUIC} }

// TensorsAlone says whether a lane moves tensors and nothing else: what is small goes by another.
func TensorsAlone(name string) bool { return name == LaneCUDA || name == LaneBulk }

// LaneState is a lane of one link.
type LaneState struct {
	Name     string
	Why      string // why it is not used; empty when it is
	Sent     uint64 // bytes of frames and tensors
	Received uint64
	Passed   uint64 // of LaneCUDA: messages sent by another lane, with a tensor on an accelerator that lands on one
}

// LaneCode is a lane's number on the wire; 0 for no lane. A number is never given again.
func LaneCode(name string) byte {
	switch name {
	case LaneQUIC:
		return 1
	case LaneLocal:
		return 2
	case LaneBulk:
		return 3
	case LaneCUDA:
		return 4
	}
	return 0
}

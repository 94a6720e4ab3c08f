package ctx

import "strconv"

// WorkerID numbers the workers of a job: their rank.
type WorkerID uint16

// PassID is unique in a job: the worker that opened the pass in the top 16 bits, a counter in the
// low 48. The counter begins where [Config].First says: each life of a worker draws ids of its own.
type PassID uint64

// MessageID names a send function and its recv function; it is made as a PassID is.
type MessageID uint64

// BackwardID names one backward of a pass; it is made as a PassID is.
type BackwardID uint64

const counterBits = 48

// maxCounter is the highest counter; a worker that opened a pass every microsecond would reach it
// after nine years.
const maxCounter = 1<<counterBits - 1

func newID(w WorkerID, counter uint64) uint64 {
	return uint64(w)<<counterBits | counter&maxCounter
}

// Creator is the worker that opened the pass.
func (id PassID) Creator() WorkerID { return WorkerID(id >> counterBits) }

// creator is the worker that began the backward: its root.
func (id BackwardID) creator() WorkerID { return WorkerID(id >> counterBits) }

// Creator is the worker that sent the message.
func (id MessageID) Creator() WorkerID { return WorkerID(id >> counterBits) }

// String prints "0.17": creator and counter.
func (id PassID) String() string { return idString(uint64(id)) }

// String prints "0.17": creator and counter.
func (id MessageID) String() string { return idString(uint64(id)) }

// String prints "0.17": creator and counter.
func (id BackwardID) String() string { return idString(uint64(id)) }

// idString leaves out the upper 16 bits of the counter, which tell the lives of a worker apart.
func idString(id uint64) string {
	var space [24]byte
	return string(appendID(space[:0], id))
}

func appendID(b []byte, id uint64) []byte {
	b = append(strconv.AppendUint(b, id>>counterBits, 10), '.')
	return strconv.AppendUint(b, id&(1<<32-1), 10)
}

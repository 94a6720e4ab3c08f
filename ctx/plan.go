package ctx

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Plan is the messages that take part in one backward, in order. Each brings its gradients to the
// worker that made it, once.
type Plan []MessageID

// of is the part of one worker.
func (p Plan) of(w WorkerID) Plan {
	lo, _ := slices.BinarySearch(p, MessageID(newID(w, 0)))
	hi, _ := slices.BinarySearch(p, MessageID(newID(w, maxCounter)))
	if hi < len(p) && p[hi].Creator() == w {
		hi++
	}
	return p[lo:hi]
}

// workers are those that gradients come to, in order.
func (p Plan) workers() []WorkerID {
	var ws []WorkerID
	for _, id := range p {
		if w := id.Creator(); len(ws) == 0 || ws[len(ws)-1] != w {
			ws = append(ws, w)
		}
	}
	return ws
}

// Append writes the plan: for each message the distance from the one before, as a varint.
func (p Plan) Append(b []byte) []byte {
	last := MessageID(0)
	for _, id := range p {
		b = binary.AppendUvarint(b, uint64(id-last))
		last = id
	}
	return b
}

// ParsePlan reads what Append wrote.
func ParsePlan(b []byte) (Plan, error) {
	if len(b) > maxLineage {
		return nil, fmt.Errorf("%w: a plan of %d bytes, more than %d", ErrProtocol, len(b), maxLineage)
	}
	plan, last := make(Plan, 0, len(b)), MessageID(0)
	for len(b) > 0 {
		d, n := binary.Uvarint(b)
		id := last + MessageID(d)
		if n <= 0 || id <= last {
			return nil, fmt.Errorf("%w: a plan whose messages are not in order", ErrProtocol)
		}
		plan, last, b = append(plan, id), id, b[n:]
	}
	return slices.Clip(plan), nil
}

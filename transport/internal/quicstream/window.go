package quicstream

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

// Packets of tensors queue in buffers that the connection does not see, at the ends and on the way,
// and everything else on the link would stand behind them. So the receiver says how far it has
// read, and no more than a window is under way in all transfers of a link: as much as the path
// needs to be full, and little where it is short and somebody calls.
const (
	windowLeast = 120 << 10 // with turns for calls, no slower beside them than 64 KiB without
	windowQuiet = 512 << 10 // where nobody calls
	windowRate  = 600       // bytes per microsecond that a connection may move at best
	creditEvery = 32 << 10
	grantLeast  = 16 << 10
	eagerMost   = 4 << 20
)

// quietFor is for how long there was no call where nobody calls. A call that comes then waits for a
// millisecond, once.
const quietFor = 50 * time.Millisecond

// windowFor is how many bytes may be under way on a path.
func windowFor(rtt, quiet time.Duration) int64 {
	least := int64(windowLeast)
	if quiet >= quietFor {
		least = windowQuiet
	}
	return min(max(least, 2*windowRate*rtt.Microseconds()), LinkWindow)
}

// sizeOf gives the size of the window of a path, as there are calls on its network or not.
func sizeOf(rtt func() time.Duration, env lane.Env) func() int64 {
	courtesy := lane.NewCourtesy(env.Calls)
	return func() int64 { return windowFor(rtt(), courtesy.Quiet(time.Now())) }
}

// eagerFor is how many of them may be of tensors that the peer has not asked for.
func eagerFor(window int64) int64 { return min(window/2, eagerMost) }

// sharedWindow shares the window between transfers that were asked for; those who wait take turns.
type sharedWindow struct {
	used  int64 // written, and not read by the peer
	waits []*transfer
}

// grantLocked gives waiting transfers what room there is.
func (h *Channel) grantLocked() {
	size := h.size()
	for len(h.window.waits) > 0 {
		t := h.window.waits[0]
		n := min(t.wants, creditEvery, size-h.window.used)
		if n < min(t.wants, grantLeast) {
			return
		}
		h.window.waits[0] = nil
		h.window.waits = h.window.waits[1:]
		t.spendLocked(n)
		t.granted = n
		lane.Wake(t.turn)
	}
}

func (t *transfer) spendLocked(n int64) {
	t.written += n
	if t.wanted {
		t.h.window.used += n
	}
}

// room waits until some of n bytes may be written, and says how many.
func (t *transfer) room(c context.Context, n int64) (int64, error) {
	h := t.h
	h.mu.Lock()
	if !t.wanted && t.written >= t.early {
		h.mu.Unlock()
		select {
		case <-t.asked:
		case <-c.Done():
			return 0, c.Err()
		}
		h.mu.Lock()
	}
	if !t.wanted {
		n = min(n, t.early-t.written)
		t.spendLocked(n)
		h.mu.Unlock()
		return n, nil
	}
	if room := h.size() - h.window.used; len(h.window.waits) == 0 && room >= min(n, grantLeast) {
		n = min(n, room)
		t.spendLocked(n)
		h.mu.Unlock()
		return n, nil
	}
	t.wants = n
	h.window.waits = append(h.window.waits, t)
	h.mu.Unlock()
	select {
	case <-t.turn:
		return t.granted, nil
	case <-c.Done():
		return 0, c.Err()
	}
}

// wantLocked notes that the peer reads the transfer: what was written of it counts against the
// window now.
func (t *transfer) wantLocked() {
	if t.wanted {
		return
	}
	t.calmLocked()
	t.wanted = true
	t.h.window.used += t.written
	close(t.asked)
}

// readLocked notes how far the peer has read.
func (t *transfer) readLocked(total uint64) error {
	if total < uint64(t.read) || total > uint64(t.written) {
		return wire.FrameErr("word", "no more bytes read than were written, and no fewer than before", "%d of %d, after %d", total, t.written, t.read)
	}
	t.wantLocked()
	t.h.window.used -= int64(total) - t.read
	t.read = int64(total)
	t.h.grantLocked()
	return nil
}

// leaveLocked takes a transfer out: it is over and the peer will say nothing more of it, or it does
// not matter.
func (t *transfer) leaveLocked() {
	h := t.h
	if h.out[t.id] != t {
		return
	}
	delete(h.out, t.id)
	t.calmLocked()
	if i := slices.Index(h.window.waits, t); i >= 0 {
		h.window.waits = slices.Delete(h.window.waits, i, i+1)
	}
	if t.wanted {
		h.window.used -= t.written - t.read
		h.grantLocked()
	}
}

// pacedWriter writes a transfer's stream as the window allows.
type pacedWriter struct {
	t *transfer
	c context.Context
	s *quic.SendStream
}

func (w pacedWriter) Write(b []byte) (done int, err error) {
	for done < len(b) {
		n, err := w.t.room(w.c, int64(len(b)-done))
		if err != nil {
			return done, err
		}
		k, err := w.s.Write(b[done : done+int(n)])
		done += k
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// creditReader reads a transfer's stream, and tells the sender how far.
type creditReader struct {
	h          *Channel
	id         uint64
	r          io.Reader
	read, said uint64
}

func (r *creditReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b[:min(len(b), creditEvery)])
	r.read += uint64(n)
	if r.read-r.said >= creditEvery {
		r.say()
	}
	return n, err
}

func (r *creditReader) say() {
	r.said = r.read
	r.h.sendWord(wordRead, r.id, r.read)
}

// LinkWindow is how many bytes may be on their way on all streams of a link.
const LinkWindow = 64 << 20

package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport/internal/wire"
)

// The ledger is a sequence of entries of 16 bytes, little-endian: kind 4, number 4, value 8.
const (
	ledgerSegment = 1 + iota // the segment with that number, which counts from 1, has value bytes; with its descriptor
	ledgerRetire             // nothing will lie in the segment with that number any more
	ledgerBack               // number loans, from value on, have ended
)

const (
	ledgerSize = 16
	maxRights  = 8 // descriptors that have come before their entries
)

type ledgerEntry struct {
	kind, number uint32
	value        uint64
	file         *os.File // its to close
}

func (e ledgerEntry) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, e.kind)
	b = binary.LittleEndian.AppendUint32(b, e.number)
	return binary.LittleEndian.AppendUint64(b, e.value)
}

// enterLocked sees to it that an entry is written; it does not wait.
func (h *channel) enterLocked(e ledgerEntry) {
	h.queue = append(h.queue, e)
	if !h.writing {
		h.writing = true
		go h.writeEntries()
	}
}

// writeEntries writes until there is nothing left.
func (h *channel) writeEntries() {
	for {
		h.mu.Lock()
		q := h.queue
		h.queue = nil
		if len(q) == 0 {
			h.writing = false
			h.finishLocked()
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		var b []byte
		for i, e := range q {
			b = e.append(b)
			if e.file == nil && i+1 < len(q) && q[i+1].file == nil && len(b) < 64<<10 {
				continue
			}
			_ = h.post(b, e.file) // fails when the peer is gone, which read sees
			b = b[:0]
		}
	}
}

func (h *channel) post(b []byte, f *os.File) error {
	if f == nil {
		_, err := h.conn.Write(b)
		return err
	}
	defer f.Close() //nolint:errcheck // the peer has its own
	n, _, err := h.conn.WriteMsgUnix(b, unix.UnixRights(int(f.Fd())), nil)
	if err == nil && n < len(b) {
		_, err = h.conn.Write(b[n:])
	}
	return err
}

// readEntries takes the peer's entries until it owes nothing any more. Then all loans have ended.
func (h *channel) readEntries() {
	err := h.readLedger()
	h.mu.Lock()
	h.gone = true
	h.ringLocked()
	lent := h.loans
	h.loans = map[uint64]*device.Buffer{}
	up := h.err == nil
	if h.finished || err != io.EOF { //nolint:errorlint // readLedger's own
		_ = h.conn.Close()
	}
	h.mu.Unlock()
	for _, b := range lent {
		_ = b.Release() // the loan's
	}
	if up {
		h.env.Suspect(fmt.Errorf("the ledger of the %s lane: %w", wire.LaneLocal, err))
	}
}

func (h *channel) readLedger() error {
	var fds []int
	defer func() { closeFiles(fds) }()
	b, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4*maxRights))
	have := 0
	for {
		n, on, _, _, err := h.conn.ReadMsgUnix(b[have:], oob)
		more, rerr := rights(oob[:on])
		fds = append(fds, more...)
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return err
		case rerr != nil:
			return wire.FrameErr("ledger", "descriptors", "%v", rerr)
		case n == 0:
			return io.EOF
		}
		have += n
		at := 0
		for ; have-at >= ledgerSize; at += ledgerSize {
			e := ledgerEntry{
				kind: binary.LittleEndian.Uint32(b[at:]), number: binary.LittleEndian.Uint32(b[at+4:]), value: binary.LittleEndian.Uint64(b[at+8:]),
			}
			if err := h.handleEntry(e, &fds); err != nil {
				return err
			}
		}
		have = copy(b, b[at:have])
		if len(fds) > maxRights {
			return wire.FrameErr("ledger", "a descriptor for each segment", "%d more", len(fds))
		}
	}
}

// handleEntry does what an entry says. It takes a segment's descriptor off fds.
func (h *channel) handleEntry(e ledgerEntry, fds *[]int) error {
	switch e.kind {
	case ledgerSegment:
		if len(*fds) == 0 {
			return wire.FrameErr("ledger", "a descriptor with the segment", "none")
		}
		fd := (*fds)[0]
		*fds = (*fds)[1:]
		return h.takeSegment(e, fd)
	case ledgerRetire:
		h.mu.Lock()
		defer h.mu.Unlock()
		if m := h.maps[e.number]; m != nil {
			delete(h.maps, e.number)
			h.mapped -= int64(len(m.mem))
			m.dropLocked()
		}
		return nil
	case ledgerBack:
		if e.number > loansMost {
			return wire.FrameErr("ledger", fmt.Sprintf("at most %d loans", loansMost), "%d", e.number)
		}
		h.returned(e.value, e.number)
		return nil
	}
	return wire.FrameErr("ledger", "a known kind", "%d", e.kind)
}

func (h *channel) takeSegment(e ledgerEntry, fd int) error {
	m, err := mapSegment(fd, e.value)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.err != nil:
		m.dropLocked()
	case e.number != h.heard+1 || len(h.maps) >= maxSegments || h.mapped+int64(len(m.mem)) > maxMapped:
		m.dropLocked()
		return wire.FrameErr("ledger", fmt.Sprintf("segment %d, of at most %d and %d bytes", h.heard+1, maxSegments, uint64(maxMapped)), "%d of %d bytes", e.number, e.value)
	default:
		h.heard++
		h.maps[e.number] = m
		h.mapped += int64(len(m.mem))
		h.ringLocked()
	}
	return nil
}

// rights takes the descriptors out of a control message.
func rights(oob []byte) (fds []int, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	for i := range msgs {
		more, perr := unix.ParseUnixRights(&msgs[i])
		if perr != nil {
			err = perr
			continue
		}
		fds = append(fds, more...)
	}
	return fds, err
}

func closeFiles(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

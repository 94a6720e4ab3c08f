package journal

import (
	"fmt"
	"sync"
	"time"
)

const (
	sealAt  = 1 << 20 // a frame that has so much takes no more records
	spareTo = 1 << 20 // larger buffers are not kept for the next frame
)

// Journal is an open journal. The package comment says what it promises.
//
// Who waits in Commit and finds nobody writing writes what all have appended until then; the
// others' records gather in the next frame.
type Journal struct {
	path   string
	cfg    Config
	failed chan struct{}

	mu       sync.Mutex
	free     sync.Cond // of mu: writing, syncing or compacting became false, or err was set
	err      error     // the first failure, or ErrClosed: nothing is written any more
	queue    []frame   // not yet written
	spare    []byte
	appended uint64 // the number of the last record
	safe     uint64 // the last record that Commit may vouch for

	writing    bool // somebody uses file, salt and end without holding mu
	held       bool // nobody begins to write, as a compaction is about to
	syncing    bool // somebody syncs file
	compacting bool
	file       file
	salt       uint64
	end        int64

	timer *time.Timer // nil if none runs, for the policy of an interval
	mark  mark
	quiet int64 // a compaction failed: Due is false until the file is longer than this
}

// frame is records on their way to the file.
type frame struct {
	bytes  []byte // with room for the head
	last   uint64 // the number of the last record in it
	sealed bool
}

// Append takes a record for the file and returns its number, for Commit. It does not wait; record
// is copied. An error is told by Commit.
func (j *Journal) Append(record []byte) uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.appended++
	if err := j.cfg.checkRecord(record); err != nil {
		j.failLocked(err)
	}
	if j.err != nil {
		return j.appended
	}
	n := len(j.queue)
	if n == 0 || j.queue[n-1].sealed || len(j.queue[n-1].bytes)+len(record) > sealAt {
		j.queue, j.spare = append(j.queue, frame{bytes: j.spare}), nil
		n++
	}
	last := &j.queue[n-1]
	last.bytes, last.last = appendRecord(last.bytes, record), j.appended
	return j.appended
}

// Commit returns when record seq, and all before it, are as safe as the policy asks, or cannot be.
func (j *Journal) Commit(seq uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for seq = min(seq, j.appended); j.safe < seq; {
		switch {
		case j.err != nil:
			return j.err
		case j.writing || j.held:
			j.free.Wait()
		default:
			j.writeLocked()
		}
	}
	return nil
}

// last is the number of the record that was appended last.
func (j *Journal) last() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.appended
}

// Err is why nothing can be made safe any more, or nil.
func (j *Journal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Failed is closed when Err becomes an error, ErrClosed among them.
func (j *Journal) Failed() <-chan struct{} { return j.failed }

// Size is the length of the file in bytes.
func (j *Journal) Size() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.end
}

// writeLocked writes the first frame of the queue. It gives mu up while it does.
func (j *Journal) writeLocked() {
	f := j.queue[0]
	if j.queue = j.queue[1:]; len(j.queue) == 0 {
		j.queue = nil
	}
	j.writing = true
	j.mu.Unlock()
	seal(f.bytes, j.salt, j.end)
	_, err := j.file.WriteAt(f.bytes, j.end)
	if err == nil && j.cfg.Sync == Always {
		err = j.file.Sync()
	}
	j.mu.Lock()
	j.writing = false
	j.free.Broadcast()
	if err != nil {
		j.failLocked(err)
		return
	}
	j.end += int64(len(f.bytes))
	j.safe = f.last
	if j.mark.seq == j.safe {
		j.mark.at = j.end
	}
	if cap(f.bytes) <= spareTo {
		j.spare = f.bytes[:0]
	}
	if j.cfg.Sync > 0 && j.timer == nil {
		j.timer = time.AfterFunc(time.Duration(j.cfg.Sync), j.syncSoon)
	}
}

// syncSoon is the timer's: it brings to the disk what was written since it was set.
func (j *Journal) syncSoon() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.timer = nil
	for j.syncing && j.err == nil {
		j.free.Wait()
	}
	if j.err != nil {
		return
	}
	j.syncing = true
	f := j.file
	j.mu.Unlock()
	err := f.Sync()
	j.mu.Lock()
	j.syncing = false
	j.free.Broadcast()
	if err != nil {
		j.failLocked(err)
	}
}

func (j *Journal) failLocked(err error) {
	if j.err == nil {
		j.err = fmt.Errorf("journal %s: %w", j.path, err)
		j.queue, j.spare = nil, nil
		close(j.failed)
		j.free.Broadcast()
	}
}

// Close writes and syncs what was appended, and gives the file back. It fails if there was a
// failure before, as what was appended then is not in the file. Closing twice is no error.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	for j.err == nil && (j.writing || j.held || len(j.queue) > 0) {
		if j.writing || j.held {
			j.free.Wait()
		} else {
			j.writeLocked()
		}
	}
	failed := j.err
	j.failLocked(ErrClosed)
	for j.writing || j.syncing || j.compacting {
		j.free.Wait()
	}
	if j.file == nil { // closed by another call meanwhile
		return failed
	}
	if failed == nil {
		if err := j.file.Sync(); err != nil {
			failed = fmt.Errorf("journal %s: %w", j.path, err)
		}
	}
	if j.timer != nil {
		j.timer.Stop()
	}
	j.file.Close()
	j.file = nil
	return failed
}

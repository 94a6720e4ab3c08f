package journal

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"path/filepath"
)

// mark is where, in the file, the records begin that a compaction's snapshot does not have.
type mark struct {
	seq uint64 // of the last record before, or noMark
	at  int64  // the offset; known as soon as record seq is written
}

const (
	noMark    = math.MaxUint64
	dueFrom   = 1 << 20   // a file that is shorter is never worth a compaction
	holdBelow = 256 << 10 // so little is copied while writing is held up for it
)

// Due says whether it is time to compact, where a snapshot would have about live bytes.
func (j *Journal) Due(live int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err == nil && !j.compacting && j.cfg.Growth > 0 && j.end > j.quiet && j.end-dueFrom > int64(j.cfg.Growth)*live
}

// Compact puts the records that take gives in the place of all appended so far. It calls take once,
// which must call mark at a moment in which nothing is appended: the records must have the effect
// of all that were appended before it.
//
// Append and Commit go on meanwhile, but for the time it takes to sync a short piece at the end. If
// there is an error and Err is nil, the journal is as it was.
func (j *Journal) Compact(take func(mark func()) iter.Seq[[]byte]) error {
	if err := j.startCompacting(); err != nil {
		return err
	}
	n, err := j.newFile()
	if err == nil {
		if err = j.fill(n, take(j.setMark)); err != nil {
			n.discard()
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.compacting, j.mark.seq, j.quiet = false, noMark, 0
	j.free.Broadcast()
	if err != nil {
		j.quiet = 2 * j.end
		err = fmt.Errorf("journal %s: compacting: %w", j.path, err)
	}
	return err
}

func (j *Journal) startCompacting() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	if j.compacting {
		return ErrBusy
	}
	j.compacting = true
	return nil
}

// setMark ends the frame that is being filled, so that the next record begins one.
func (j *Journal) setMark() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n := len(j.queue); n > 0 {
		j.queue[n-1].sealed = true
	}
	j.mark = mark{j.appended, j.end} // right if all is written, and set again when it is
}

// fill writes the new file and puts it in the old one's place.
func (j *Journal) fill(n *newFile, snapshot iter.Seq[[]byte]) error {
	for record := range snapshot {
		if err := errors.Join(j.Err(), j.cfg.checkRecord(record)); err != nil {
			return err
		}
		if err := n.appendRecord(record); err != nil {
			return err
		}
	}
	j.mu.Lock()
	seq := j.mark.seq
	j.mu.Unlock()
	if seq == noMark {
		return errors.New("take has not called mark")
	}
	if err := errors.Join(n.flush(), j.Commit(seq)); err != nil {
		return err
	}
	j.mu.Lock()
	from, to := j.mark.at, j.end
	j.mu.Unlock()
	for last := int64(math.MaxInt64); ; {
		if err := j.copy(n, from, to); err != nil {
			return err
		}
		// The sync of a large piece is done before writing is held up for the last one.
		if err := n.file.Sync(); err != nil {
			return err
		}
		from, to = to, j.Size()
		if to-from < holdBelow || to-from > last/2 { // a journal that grows faster than it is copied must be held up
			break
		}
		last = to - from
	}
	return j.replaceBy(n, from)
}

// copy copies frames of the file, between two offsets, to the new one.
func (j *Journal) copy(n *newFile, from, to int64) error {
	end, err := scan(j.file, j.salt, from, to, func(_ int64, payload []byte) error {
		n.frame = append(append(n.frame[:0], make([]byte, frameHead)...), payload...)
		return n.flush()
	})
	if err == nil && end != to {
		err = &CorruptError{j.path, end, "what was written there is not there any more"}
	}
	return err
}

// replaceBy copies the rest to the new file and puts it in the old one's place. Nobody writes
// meanwhile.
func (j *Journal) replaceBy(n *newFile, from int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.held = true
	for j.err == nil && (j.writing || j.syncing) {
		j.free.Wait()
	}
	j.held = false
	if j.err != nil {
		return j.err
	}
	j.writing = true
	j.mu.Unlock()
	err := j.copy(n, from, j.end)
	if err == nil {
		err = n.file.Sync()
	}
	if err == nil {
		err = j.cfg.disk.rename(n.path, j.path)
	}
	var lost error
	if err == nil {
		lost = j.cfg.disk.syncDir(filepath.Dir(j.path)) // without it, a crash could bring back the old file
	}
	j.mu.Lock()
	j.writing = false
	j.free.Broadcast()
	if err != nil {
		return err
	}
	j.file.Close()
	j.file, j.salt, j.end = n.file, n.salt, n.end
	if lost != nil {
		j.failLocked(lost)
	}
	return nil
}

// newFile is what a compaction writes.
type newFile struct {
	file
	disk  disk
	path  string
	salt  uint64
	end   int64
	frame []byte // records not yet written, with room for the head
}

// newFile makes a file with a head, locked as it will have the journal's name.
func (j *Journal) newFile() (*newFile, error) {
	n := &newFile{disk: j.cfg.disk, path: j.path + newSuffix, salt: rand.Uint64(), end: int64(headSize)}
	var err error
	if n.file, err = n.disk.create(n.path); err != nil {
		return nil, err
	}
	free, err := n.lock()
	if err == nil && !free {
		err = ErrLocked
	}
	if err == nil {
		_, err = n.WriteAt(appendHead(nil, n.salt), 0)
	}
	if err != nil {
		n.discard()
		return nil, err
	}
	return n, nil
}

func (n *newFile) discard() {
	n.Close()
	_ = n.disk.remove(n.path) // Open does it otherwise
}

func (n *newFile) appendRecord(record []byte) error {
	if len(n.frame) > frameHead && len(n.frame)+len(record) > sealAt {
		if err := n.flush(); err != nil {
			return err
		}
	}
	n.frame = appendRecord(n.frame, record)
	return nil
}

// flush writes the frame.
func (n *newFile) flush() error {
	if len(n.frame) <= frameHead {
		return nil
	}
	seal(n.frame, n.salt, n.end)
	if _, err := n.WriteAt(n.frame, n.end); err != nil {
		return err
	}
	n.end += int64(len(n.frame))
	n.frame = n.frame[:0]
	return nil
}

package file

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/weft-project/weft/internal/flock"
	"github.com/weft-project/weft/internal/private"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
)

// fileLog is a file of records, and how far it has been read. The file stays open while it is the
// one at path, so that no other gets its number.
type fileLog struct {
	path   string
	limits kv.Limits

	file   *os.File // nil while there is none
	id     os.FileInfo
	size   int64     // of the whole records, which have been read
	last   []byte    // the last bytes of them
	copies []kv.Pair // of the last batch, what must still follow it for PyTorch's processes
	judged int64     // the size of the file whose torn end was found to be just that
}

// lastBytes is how many bytes before the end are compared, to tell a file that has grown from one
// that was written anew.
const lastBytes = 64

// access is what an operation wants of the file.
type access int

const (
	read   access = iota // no file is an empty one
	write                // likewise; nothing is written then
	create               // write, and make the file if there is none
)

// lock opens the file if it is not open, locks it, and returns its length, or busy. Where there is
// no file there is no lock. fresh says that the file is another than before, or none any more.
func (l *fileLog) lock(a access) (length int64, fresh, busy bool, err error) {
	for range 3 {
		if l.file == nil {
			if err := l.open(a); l.file == nil {
				return 0, fresh, false, err
			}
		}
		locked, err := flock.Try(l.file, a != read)
		if err != nil || !locked {
			return 0, fresh, err == nil, err
		}
		info, err := os.Stat(l.path)
		if err == nil && os.SameFile(l.id, info) {
			return info.Size(), fresh, false, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, fresh, false, errors.Join(err, flock.Unlock(l.file))
		}
		l.close() // we have locked one that nobody else will find
		fresh = true
	}
	return 0, fresh, true, nil
}

func (l *fileLog) open(a access) error {
	flag := os.O_RDWR
	if a == create {
		flag |= os.O_CREATE
	}
	file, err := private.OpenFile(l.path, flag)
	if errors.Is(err, fs.ErrNotExist) && a != create {
		return nil
	}
	if err != nil {
		return err
	}
	if l.id, err = file.Stat(); err != nil {
		return errors.Join(err, file.Close())
	}
	l.file = file
	return nil
}

// close forgets the file and what was read, and gives the lock back.
func (l *fileLog) close() {
	if l.file != nil {
		_ = l.file.Close() // every write was answered before
	}
	*l = fileLog{path: l.path, limits: l.limits}
}

// rewind forgets what was read.
func (l *fileLog) rewind() { l.size, l.last, l.copies, l.judged = 0, nil, nil, 0 }

// idle says whether the file is as it was when it was last read, as far as can be seen without its
// lock.
func (l *fileLog) idle() bool {
	info, err := os.Stat(l.path)
	if l.file == nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	return err == nil && os.SameFile(l.id, info) && info.Size() == l.size
}

// grown says whether the file, which has length bytes, begins with what was read of it, as far as
// its end shows.
func (l *fileLog) grown(length int64) (bool, error) {
	if length < l.size || length == l.size || len(l.last) == 0 {
		return length >= l.size, nil
	}
	b := make([]byte, len(l.last))
	if _, err := l.file.ReadAt(b, l.size-int64(len(b))); err != nil {
		return false, err
	}
	return bytes.Equal(b, l.last), nil
}

// read gives what was appended to visit, as changes of a state. A batch is one change; the records
// that follow it for PyTorch's sake are none. What visit fails at is read again the next time.
func (l *fileLog) read(length int64, visit func(state.Command) error) error {
	if l.file == nil || length == l.size {
		return nil
	}
	end, err := scan(l.file, l.size, length, l.limits, func(r record) error {
		if len(l.copies) > 0 && r.key == l.copies[0].Key && bytes.Equal(r.value, l.copies[0].Value) {
			l.copies = l.copies[1:]
			return nil
		}
		cmd, err := r.command(l.limits)
		if err != nil {
			return err
		}
		if err := visit(cmd); err != nil {
			return err
		}
		l.copies = cmd.Pairs
		return nil
	})
	if end > l.size {
		if e := l.reached(end); err == nil {
			err = e
		}
	}
	if err == nil && end < length && length != l.judged {
		if err = l.judge(end, length); err == nil {
			l.judged = length
		}
	}
	return err
}

// reached moves the end of what was read.
func (l *fileLog) reached(end int64) error {
	l.size, l.last = end, make([]byte, min(end, lastBytes))
	_, err := l.file.ReadAt(l.last, end-int64(len(l.last)))
	return err
}

// judge says whether the end of the file, in which there is no whole record, may be cut off.
func (l *fileLog) judge(from, to int64) error {
	b := make([]byte, to-from) // less than the longest record
	if _, err := l.file.ReadAt(b, from); err != nil {
		return err
	}
	if hidesRecord(b, l.limits) {
		return fmt.Errorf("record at byte %d: %w: its length is wrong, or it was not finished before others were appended", from, kv.ErrCorrupt)
	}
	return nil
}

// append writes records behind the last whole one, after those that a dying writer still owed. The
// file has length bytes; what it has too many is cut off. It is all or nothing, or ErrUncertain.
func (l *fileLog) append(length int64, records []byte) error {
	if length > l.size {
		if err := l.file.Truncate(l.size); err != nil {
			return err
		}
	}
	b := append(appendPairs(nil, l.copies), records...)
	if _, err := l.file.WriteAt(b, l.size); err != nil {
		if e := l.file.Truncate(l.size); e != nil {
			err = fmt.Errorf("%w: %w; %w", kv.ErrUncertain, err, e)
		}
		return err
	}
	l.size += int64(len(b))
	l.last = append(l.last, b[max(0, len(b)-lastBytes):]...)
	l.last = l.last[max(0, len(l.last)-lastBytes):]
	l.copies = nil
	return nil
}

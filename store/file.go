package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// FileConfig says how a file store is used. Its zero value works.
type FileConfig struct {
	// WorldSize is how many clients the store will have. If it is more than 0, the last of them to close removes the
	// file; otherwise nobody does, and a file left by an earlier job must be removed before a new one.
	WorldSize int
	Timeout   time.Duration // of operations without a deadline; 0 means DefaultTimeout
	Poll      time.Duration // how often a waiter looks at the file; 0 means 10 ms
	Limits    Limits
}

// File is a store in a file that all clients can lock with flock(2), in the format of PyTorch's FileStore. A change is
// a record appended under the exclusive lock; each client keeps in memory what it has read so far. The file grows with
// every change, so this is for a rendezvous and not for a busy job. A waiter polls.
//
// A record that a dying writer left unfinished is ignored, and cut off by the next writer.
type File struct {
	base Settings
	cfg  FileConfig
	done chan struct{} // closed by Close

	turn chan struct{} // capacity 1: holding its token guards what follows; a channel, so that waiting for it can end
	seen os.FileInfo   // the file that data was read from
	size int64         // how much of it was read
	data map[string][]byte

	once sync.Once
}

var _ Store = (*File)(nil)

// NewFile opens the store in path and makes the file if it does not exist; its directory must.
func NewFile(path string, cfg FileConfig) (*File, error) {
	fail := func(err error) (*File, error) { return nil, &Error{Op: "open", Addr: path, Err: err} }
	if cfg.WorldSize < 0 || cfg.Timeout < 0 || cfg.Poll < 0 {
		return fail(errors.New("WorldSize, Timeout and Poll must not be negative"))
	}
	if err := cfg.Limits.validate(); err != nil {
		return fail(err)
	}
	if cfg.Poll == 0 {
		cfg.Poll = pollEvery
	}
	abs, err := filepath.Abs(path) // the working directory may change
	if err != nil {
		return fail(err)
	}
	f := &File{base: NewSettings(abs, cfg.Timeout, cfg.Limits), cfg: cfg, done: make(chan struct{}),
		turn: make(chan struct{}, 1), data: map[string][]byte{}}
	o, err := f.base.Begin(context.Background(), "open")
	if err != nil {
		return fail(err)
	}
	defer o.End()
	if err := f.locked(o, true, func(*os.File) error { return nil }); err != nil {
		return fail(err)
	}
	return f, nil
}

// Path is where the store is.
func (f *File) Path() string { return f.base.addr }

// locked runs do with the file locked and everything in it read. Only with the exclusive lock may do call append.
func (f *File) locked(o *Operation, exclusive bool, do func(*os.File) error) error {
	select {
	case <-f.done:
		return ErrClosed
	default:
	}
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-f.done:
		return ErrClosed
	case <-o.Context.Done():
		return o.Over()
	}
	h, err := f.open(o, exclusive)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := f.catchUp(h); err != nil {
		return err
	}
	return do(h)
}

// open opens and locks the file. If the file was removed while we waited for its lock we have locked one that nobody
// else will find, and start again.
func (f *File) open(o *Operation, exclusive bool) (*os.File, error) {
	for wait := 50 * time.Microsecond; ; wait = min(2*wait, f.cfg.Poll) {
		h, err := os.OpenFile(f.base.addr, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		locked, err := tryLock(h, exclusive)
		if err == nil && locked {
			if current, err := sameFile(h, f.base.addr); current || err != nil {
				return h, err
			}
		}
		h.Close()
		if err == nil {
			err = f.rest(o, wait)
		}
		if err != nil {
			return nil, err
		}
	}
}

// rest waits for d, or less if the operation or the store ends.
func (f *File) rest(o *Operation, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-f.done:
		return ErrClosed
	case <-o.Context.Done():
		return o.Over()
	}
}

func sameFile(h *os.File, path string) (bool, error) {
	opened, err := h.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(opened, named), err
}

// catchUp reads what others have appended since we looked.
func (f *File) catchUp(h *os.File) error {
	info, err := h.Stat()
	if err != nil {
		return err
	}
	if f.seen == nil || !os.SameFile(f.seen, info) || info.Size() < f.size {
		f.size, f.data = 0, map[string][]byte{} // another file than the one we know
	}
	f.seen = info
	n, err := replay(io.NewSectionReader(h, f.size, info.Size()-f.size), f.base.limits, f.data)
	f.size += n
	return err
}

// append writes one record and applies it.
func (f *File) append(h *os.File, key string, value []byte) error {
	if err := h.Truncate(f.size); err != nil { // cuts off what a dying writer left
		return err
	}
	record := appendRecord(nil, key, value)
	if _, err := h.WriteAt(record, f.size); err != nil {
		return errors.Join(err, h.Truncate(f.size))
	}
	f.size += int64(len(record))
	if value == nil {
		delete(f.data, key[len(tombstone):])
	} else {
		f.data[key] = value
	}
	return nil
}

// leave counts this client out, and removes the file if it was the last.
func (f *File) leave(o *Operation) error {
	const leaving = "cleanup/"
	return f.locked(o, true, func(h *os.File) error {
		var n int64
		if old, there := f.data[leaving]; there {
			var err error
			if n, err = parseDecimal(old); err != nil {
				return err
			}
		}
		if err := f.append(h, leaving, fmt.Append(nil, n+1)); err != nil {
			return err
		}
		if n+1 < int64(f.cfg.WorldSize) {
			return nil
		}
		return os.Remove(f.base.addr)
	})
}

// Close implements Store. With a WorldSize it counts this client out and, as the last, removes the file.
func (f *File) Close() (err error) {
	f.once.Do(func() {
		if f.cfg.WorldSize > 0 {
			var o *Operation
			if o, err = f.base.Begin(context.Background(), "close"); err == nil {
				err = o.Fail(f.leave(o))
				o.End()
			}
		}
		close(f.done)
	})
	return err
}

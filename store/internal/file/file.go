package file

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
)

// Config says how a file store is used. Its zero value works.
type Config struct {
	// WorldSize is how many clients the store will have. If it is more than 0, the last of them to
	// close removes the file; otherwise nobody does, and a file left by an earlier job must be
	// removed before a new one.
	WorldSize int
	// References makes this client count itself in while it is open, as PyTorch's from 2.0 on do,
	// so that none of those removes the file before. It costs a key, which NumKeys counts, and
	// happens anyway where others have been counted. PyTorch 1.13 counts those only who have
	// closed.
	References bool

	Timeout time.Duration // of operations without a deadline; 0 means DefaultTimeout
	Poll    time.Duration // how often the file is looked at while somebody waits; 0 means 10 ms
	Limits  kv.Limits
}

// File is a store in a file that all clients can lock with flock(2), in the format of PyTorch's
// FileStore. A change is one or more records appended under the exclusive lock; each client keeps
// in memory what it has read so far. The file grows with every change, so this is for a rendezvous
// and not for a busy job. While somebody waits or watches, a goroutine looks at the file from time
// to time; what was appended between two looks is all seen, in its order.
//
// A record that a dying writer left unfinished is ignored, and cut off by the next writer. A
// MultiSet that it left unfinished has happened or not, for Weft's clients; PyTorch's may see a
// part of it until one of Weft's changes the store. A file that is no such log, or is damaged
// before its end, is ErrCorrupt, and is not touched. One that is removed, replaced or written anew
// is another store, with which whoever waits goes on.
//
// What it asks of the file system: that locks taken with flock exclude the processes of all
// machines that use the file; that what is written under the lock is seen under the next; and that
// a file's number is not given to another while it is open. Local ones do all three. NFS does the
// first two, from Linux 2.6.12 on and unless mounted with nolock or local_lock, and may hold the
// lock of a machine that died.
type File struct {
	base    kv.Settings
	cfg     Config
	counted bool          // in the file's references
	done    chan struct{} // closed by Close
	poll    sync.WaitGroup
	once    sync.Once

	mu      sync.Mutex // guards what follows; held while the file is read and written, but not while waiting for its lock
	log     fileLog
	state   *state.State // what the log says
	before  *state.State // unless nil, that of another log, whose watchers must be told
	changes []state.Command
	visits  map[state.ClientID]visit
	last    state.ClientID
	length  int64 // of the file, while it is locked
	polling bool
}

// visit is a call that waits, or a watch.
type visit struct {
	cmd  state.Command                 // what it asked the state
	hear func(state.Reply) (done bool) // is called with File.mu held
}

// New opens the store in path and makes the file, for this user alone, if it does not exist;
// its directory must. A file that another user could have made or may change is refused, and so is
// a link of another user's in its path.
func New(path string, cfg Config) (*File, error) {
	fail := func(err error) (*File, error) { return nil, &kv.Error{Op: "open", Addr: path, Err: err} }
	var errs []error
	if cfg.WorldSize < 0 || cfg.Timeout < 0 || cfg.Poll < 0 {
		errs = append(errs, errors.New("WorldSize, Timeout and Poll must not be negative"))
	}
	if most := longestValue(kv.Defaulted(cfg.Limits), batchKey); int64(most) > math.MaxUint32 {
		errs = append(errs, fmt.Errorf("limits of %+v allow records of %d bytes, at most %d have a place in the format", cfg.Limits, most, int64(math.MaxUint32)))
	}
	if err := errors.Join(append(errs, kv.CheckLimits(cfg.Limits))...); err != nil {
		return fail(err)
	}
	if cfg.Poll == 0 {
		cfg.Poll = kv.PollEvery
	}
	abs, err := filepath.Abs(path) // the working directory may change
	if err != nil {
		return fail(err)
	}
	f := &File{base: kv.NewSettings(abs, cfg.Timeout, cfg.Limits), cfg: cfg, done: make(chan struct{}), visits: map[state.ClientID]visit{}}
	f.log = fileLog{path: abs, limits: f.base.Limits}
	f.state = f.newState()
	o, err := f.base.Begin(context.Background(), "open")
	if err != nil {
		return fail(err)
	}
	defer o.End()
	if err := f.locked(o, create, f.enter); err != nil {
		f.log.close()
		return fail(err)
	}
	return f, nil
}

func (f *File) newState() *state.State {
	s := state.New(f.base.Limits)
	s.Changed = func(cmd state.Command) { f.changes = append(f.changes, cmd) }
	return s
}

// Path is where the store is.
func (f *File) Path() string { return f.base.Addr }

// PyTorch's counts of a file's clients: of those that have closed, and, from 2.0 on, of those that
// are open.
const (
	leftKey      = "cleanup/"
	referenceKey = "refcount/"
)

// enter counts this client in, where that is done.
func (f *File) enter() error {
	if !f.cfg.References && !f.state.Has(referenceKey) {
		return nil
	}
	_, err := f.count(referenceKey, 1)
	f.counted = err == nil
	return err
}

// leave counts this client out, and removes the file if it was the last.
func (f *File) leave() error {
	if f.log.file == nil {
		return nil // removed by others
	}
	var open int64
	left, err := f.count(leftKey, 1)
	switch {
	case err != nil:
		return err
	case f.counted:
		open, err = f.count(referenceKey, -1)
	case f.state.Has(referenceKey):
		open, err = f.count(referenceKey, 0)
	}
	if err != nil || open > 0 || f.cfg.WorldSize == 0 || left < int64(f.cfg.WorldSize) {
		return err
	}
	return os.Remove(f.base.Addr)
}

func (f *File) count(key string, by int64) (int64, error) {
	r, _, err := f.apply(f.newID(), state.Command{Op: state.OpAdd, Key: key, Delta: by})
	return r.N, err
}

// Close implements Store. With a WorldSize it counts this client out and, as the last, removes the
// file.
func (f *File) Close() (err error) {
	f.once.Do(func() { err = f.leaveFile() })
	return err
}

func (f *File) leaveFile() (err error) {
	if f.cfg.WorldSize > 0 || f.counted {
		var o *kv.Operation
		if o, err = f.base.Begin(context.Background(), "close"); err == nil {
			err = o.Fail(f.locked(o, write, f.leave))
			o.End()
		}
	}
	f.mu.Lock()
	close(f.done)
	f.tellAll(state.Reply{Err: kv.ErrClosed})
	f.log.close()
	f.mu.Unlock()
	f.poll.Wait()
	return err
}

package loader

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/weft-project/weft/parallel"
)

// Source is rows that can be read in any order, from several goroutines at once.
type Source[R any] interface {
	Len() int // how many; it does not change
	At(row int) (R, error)
}

// Func is a source of N rows that a function reads.
type Func[R any] struct {
	N    int
	Read func(row int) (R, error)
}

// Len is N.
func (f Func[R]) Len() int { return f.N }

// At reads a row.
func (f Func[R]) At(row int) (R, error) { return f.Read(row) }

// Numbers is a source whose rows are their numbers, for batches that are made of what lies in
// memory already.
type Numbers int

// Len is the number.
func (n Numbers) Len() int { return int(n) }

// At is the row's number.
func (n Numbers) At(row int) (int, error) { return row, nil }

// Config says which rows are read. Seed, Batch and Size are the same on all ranks.
type Config struct {
	Seed  uint64 // of the order of rows: see parallel.Rows
	Batch int    // rows of a step, on all ranks together
	Rank  int
	Size  int    // how many ranks there are; 1 if 0
	First uint64 // the step to begin with
	Ahead int    // batches that are read ahead, each by a goroutine of its own; 2 if 0
}

// mostAhead bounds Config.Ahead.
const mostAhead = 1 << 16

// complete puts in what is not said, and says what is wrong.
func (c *Config) complete(rows int) error {
	var errs []error
	bad := func(format string, v ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrConfig}, v...)...))
	}
	if c.Size == 0 {
		c.Size = 1
	}
	if c.Ahead == 0 {
		c.Ahead = 2
	}
	if rows <= 0 {
		bad("the source has %d rows; expected one or more", rows)
	}
	if c.Batch <= 0 {
		bad("Batch %d; expected 1 or more", c.Batch)
	}
	if c.Size < 0 || c.Rank < 0 || c.Rank >= max(c.Size, 1) {
		bad("Rank %d of Size %d", c.Rank, c.Size)
	}
	if c.Ahead < 0 || c.Ahead > mostAhead {
		bad("Ahead %d; expected 1 to %d", c.Ahead, mostAhead)
	}
	return errors.Join(errs...)
}

// Batch is what a rank trains on at a step.
type Batch[B any] struct {
	Step uint64
	Rows []int // of this rank; it may be none
	Of   B     // made of them; the zero value where there are none
}

// Loader gives the batches of a rank, one step after the other, without end.
type Loader[B any] struct {
	order chan chan result[B] // batches that are read ahead, in the order of steps
	done  chan struct{}       // closed by the first Close
	once  sync.Once
	under sync.WaitGroup

	// These are Next's alone.
	slot   chan result[B] // the next batch, which a Next that was given up has waited for
	failed error          // what has ended it
	next   uint64         // the step that Next gives
}

type result[B any] struct {
	batch Batch[B]
	err   error
}

// New begins to read. batch makes of rows what the training takes, as tensors that belong to
// nobody; it is called from several goroutines at once, and not without rows. Close must be called.
func New[R, B any](source Source[R], batch func(rows []R) (B, error), config Config) (*Loader[B], error) {
	if source == nil || batch == nil {
		return nil, fmt.Errorf("loader: New: %w: the source or the batch function is nil", ErrConfig)
	}
	n := source.Len()
	if err := config.complete(n); err != nil {
		return nil, fmt.Errorf("loader: New: %w", err)
	}
	l := &Loader[B]{order: make(chan chan result[B], config.Ahead), done: make(chan struct{}), next: config.First}
	rows := parallel.Rows{Seed: config.Seed, N: n, Batch: config.Batch}
	l.under.Go(func() {
		for step := config.First; ; step++ {
			slot := make(chan result[B], 1)
			select {
			case l.order <- slot:
			case <-l.done:
				return
			}
			l.under.Go(func() {
				b := Batch[B]{Step: step, Rows: rows.Of(step, config.Rank, config.Size)}
				var err error
				b.Of, err = read(l.done, source, batch, b.Step, b.Rows)
				slot <- result[B]{b, err}
			})
		}
	})
	return l, nil
}

// read makes one batch. Between rows it looks whether the loader was closed.
func read[R, B any](done <-chan struct{}, source Source[R], batch func(rows []R) (B, error), step uint64, rows []int) (b B, err error) {
	at := -1
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
		if err != nil {
			err = &Error{Step: step, Row: at, Err: err}
		}
	}()
	if len(rows) == 0 {
		return b, nil
	}
	all := make([]R, len(rows))
	for i, row := range rows {
		if over(done) {
			return b, ErrClosed
		}
		at = row
		if all[i], err = source.At(row); err != nil {
			return b, err
		}
	}
	at = -1
	return batch(all)
}

func over(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// Next gives the next step's batch. A context that ends leaves it where it is.
func (l *Loader[B]) Next(c context.Context) (Batch[B], error) {
	if l.failed != nil {
		return Batch[B]{}, l.failed
	}
	if over(l.done) {
		return Batch[B]{}, l.closed()
	}
	if l.slot == nil {
		select {
		case l.slot = <-l.order: // its batch is being read
		case <-c.Done():
			return Batch[B]{}, fmt.Errorf("loader: Next: %w", context.Cause(c))
		case <-l.done:
			return Batch[B]{}, l.closed()
		}
	}
	select {
	case r := <-l.slot:
		l.slot, l.failed = nil, r.err
		if r.err == nil {
			l.next++
		}
		return r.batch, r.err
	case <-c.Done():
		return Batch[B]{}, fmt.Errorf("loader: Next: %w", context.Cause(c))
	case <-l.done:
		return Batch[B]{}, l.closed()
	}
}

func (l *Loader[B]) closed() error { return fmt.Errorf("loader: Next: %w", ErrClosed) }

// Step is the step whose batch Next gives: where to go on after a restart.
func (l *Loader[B]) Step() uint64 { return l.next }

// Close ends the loader, and waits for the reads that are under way. It may be called again.
func (l *Loader[B]) Close() error {
	l.once.Do(func() { close(l.done) })
	l.under.Wait()
	return nil
}

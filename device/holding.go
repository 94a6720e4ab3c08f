package device

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/weft-project/weft/internal/callsite"
)

// Holding is memory of a device that one line of a program asked for and still has.
type Holding struct {
	At     string // file:line; empty where nothing of the program's asked
	By     string // what the line called, as autodiff.To or optim.(*Local).Step
	Bytes  int64  // of blocks, which may be up to a ninth larger than what was asked for
	Blocks int
}

func (h Holding) String() string {
	s := fmt.Sprintf("%s by %s", bytesText(h.Bytes), cmp.Or(h.By, "others"))
	if h.At != "" {
		s += " at " + h.At
	}
	if h.Blocks > 1 {
		s += fmt.Sprintf(" (%d pieces)", h.Blocks)
	}
	return s
}

// MemoryError says that a device has no memory left, and who has it. It wraps [ErrMemory].
type MemoryError struct {
	Asked    int64     // bytes
	By       Holding   // who asked, who may have some already
	Total    int64     // bytes of the device; 0: not known
	Free     int64     // most that could have been had, if it is in one piece; −1: not known
	Used     int64     // bytes of this process's blocks
	Cached   int64     // bytes that were released, and have not been given back to the device
	Holdings []Holding // the largest first
	Batch    *Batch    // of the call that asked; nil: not known, or not even 1 would have fitted
	Err      error
}

// Batch says with which batch a call of a function would have fitted where it ran out of memory,
// with all else that there was as it was. A batch is the first dimension of the call's inputs. It
// is not known where two of their dimensions may be it: a weight that is frozen comes as an input
// like any other, and as far as a function can tell its classes may change as well as the rows. A
// parameter, which requires a gradient, is never taken for a batch.
type Batch struct {
	Had, Fits int
	Backward  bool // the call has one, which would have fitted, too
}

func (b *Batch) String() string {
	text := "this call "
	if b.Backward {
		text = "this call with its backward "
	}
	return fmt.Sprintf("%swould have fitted with batch %d in place of %d, with all else that is held as it is", text, b.Fits, b.Had)
}

// Unwrap lets errors.Is find ErrMemory.
func (e *MemoryError) Unwrap() error { return e.Err }

// told is how many holdings the text has.
const told = 5

func (e *MemoryError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %s asked for", ErrMemory, bytesText(e.Asked))
	if e.By.By != "" {
		fmt.Fprintf(&b, " by %s", e.By.By)
	}
	if e.By.At != "" {
		fmt.Fprintf(&b, " at %s", e.By.At)
	}
	if e.Free >= 0 {
		fmt.Fprintf(&b, "; at most %s would have fitted", bytesText(e.Free))
	}
	if e.Batch != nil {
		fmt.Fprintf(&b, "; %v", e.Batch)
	}
	if e.Total > 0 {
		fmt.Fprintf(&b, "; of %s this process uses %s", bytesText(e.Total), bytesText(e.Used))
		if e.Cached > 0 {
			fmt.Fprintf(&b, ", %s kept for reuse", bytesText(e.Cached))
		}
		if others := e.Total - e.Used - e.Cached - e.Free; e.Free >= 0 && others > 0 {
			fmt.Fprintf(&b, " and other work %s", bytesText(others))
		}
	}
	for k, h := range e.Holdings[:min(told, len(e.Holdings))] {
		fmt.Fprintf(&b, "%s%v", map[bool]string{true: "; held: ", false: ", "}[k == 0], h)
	}
	if more := len(e.Holdings) - told; more > 0 {
		fmt.Fprintf(&b, ", and %d more", more)
	}
	return b.String()
}

// bytesText is a number of bytes to read.
func bytesText(n int64) string {
	v, unit := float64(n), 0
	for ; v >= 1024 && unit < 4; unit++ {
		v /= 1024
	}
	if unit == 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGT"[unit-1])
}

// Held lists who holds what of an accelerator's memory, or of a simulated one's, the largest first;
// nil for the host's.
func Held(d Device) []Holding {
	switch d := d.(type) {
	case *Accelerator:
		return d.roll.holdings()
	case *memory:
		return d.roll.holdings()
	}
	return nil
}

// roll is blocks.
type roll struct {
	mu  sync.Mutex
	all map[*block]struct{}
}

func (r *roll) enlist(b *block) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[*block]struct{}{}
	}
	r.all[b] = struct{}{}
}

func (r *roll) strike(b *block) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, b)
}

// holdings are those of the blocks that somebody asked for.
func (r *roll) holdings() []Holding {
	stacks := map[*callsite.Stack]Holding{}
	r.mu.Lock()
	for b := range r.all {
		if by := b.by.Load(); by != nil {
			h := stacks[by]
			h.Bytes, h.Blocks = h.Bytes+int64(b.class), h.Blocks+1
			stacks[by] = h
		}
	}
	r.mu.Unlock()
	lines := map[Holding]Holding{} // a line may have been come to in several ways
	for by, h := range stacks {
		line := named(by)
		sum := lines[line]
		sum.Bytes, sum.Blocks = sum.Bytes+h.Bytes, sum.Blocks+h.Blocks
		lines[line] = sum
	}
	var all []Holding
	for line, sum := range lines {
		line.Bytes, line.Blocks = sum.Bytes, sum.Blocks
		all = append(all, line)
	}
	slices.SortFunc(all, func(a, b Holding) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.At, b.At), cmp.Compare(a.By, b.By))
	})
	return all
}

// named is the line of a stack, with nothing.
func named(by *callsite.Stack) (h Holding) {
	at, called := by.Outside()
	h.At, h.By = at.String(), called
	return h
}

// Roomy is a [Memory] that knows how much it has, and how much of it is free.
type Roomy interface {
	Room() (free, total int64, err error)
}

// full is the error of an allocation for which there was no memory.
func (d *Accelerator) full(n int, by *callsite.Stack, err error) error {
	s := d.pool.stats()
	e := &MemoryError{Asked: int64(n), By: named(by), Used: s.UsedBytes, Cached: s.PooledBytes, Holdings: d.roll.holdings(), Err: err}
	e.Free, e.Total = d.room()
	return e
}

// room is how many bytes the memory has free, or −1 where that is not known, and in all.
func (d *Accelerator) room() (free, total int64) {
	if r, ok := d.raw.(Roomy); ok {
		if free, total, err := r.Room(); err == nil {
			return free, total
		}
	}
	return -1, 0
}

// full is the same of a simulated accelerator. The host's limit is far from what a program asks for
// at a time.
func (m *memory) full(n int) error {
	if m.isHost() {
		return ErrMemory
	}
	s := m.pool.stats()
	return &MemoryError{
		Asked: int64(n), By: named(m.stacks.Here()), Total: m.limit, Free: m.limit - m.liveBytes.Load(), Used: s.UsedBytes, Cached: s.PooledBytes,
		Holdings: m.roll.holdings(), Err: ErrMemory,
	}
}

// Room is how many bytes of an accelerator's memory can be had, if it need not be in one piece:
// what is free, and what was released and is kept; −1 where that is not known, as of the host's.
// size is how many of them a buffer of n takes.
func Room(d Device) (free int64, size func(n int) int) {
	switch d := d.(type) {
	case *Accelerator:
		if free, _ = d.room(); free >= 0 {
			free += d.Stats().PooledBytes
		}
		return free, fineClass
	case *memory:
		if d.limit > 0 {
			return d.limit - d.liveBytes.Load(), func(n int) int { return n }
		}
	}
	return -1, func(n int) int { return n }
}

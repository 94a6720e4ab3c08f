package device

import (
	"errors"
	"runtime"
	"time"
)

// make takes the memory of a new block; where it is full, hard says whether what is kept is given
// back for it.
func (d *Accelerator) make(class int, hard bool) (*block, error) {
	at, err := d.take(class, hard)
	if err != nil {
		return nil, err
	}
	blk := &block{dev: d, addr: at, class: class}
	if m, ok := d.raw.(Noter); ok {
		blk.note = m.Note(at)
	}
	d.roll.enlist(blk)
	return blk, nil
}

// take takes memory; where it is full, hard says whether what is kept is given back for it.
func (d *Accelerator) take(n int, hard bool) (at uintptr, err error) {
	d.mu.Lock()
	if d.closed {
		err = ErrClosed
	} else {
		d.taken++ // before there is one: it may be the last
	}
	d.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if at, err = d.takeRaw(n, hard); err != nil {
		return 0, errors.Join(err, d.gone(1))
	}
	return at, nil
}

func (d *Accelerator) takeRaw(n int, hard bool) (uintptr, error) {
	at, err := d.raw.Take(n)
	for try := 0; hard && errors.Is(err, ErrMemory) && try < 3; try++ {
		if try == 1 && d.garbage.sum() > 0 {
			collect()
		}
		if d.Trim() > 0 {
			at, err = d.raw.Take(n)
		}
	}
	return at, err
}

// collect has the collector find what nobody reaches, and its clean-ups run, but does not wait for
// long.
func collect() {
	done := make(chan struct{})
	runtime.AddCleanup(new([64]byte), func(done chan struct{}) { close(done) }, done)
	runtime.GC()
	select {
	case <-done: // it was queued with the others
	case <-time.After(100 * time.Millisecond):
	}
}

// Trim gives back what the pool keeps and says how many bytes that were.
func (d *Accelerator) Trim() int64 {
	var n int64
	for _, b := range d.pool.empty() {
		n += int64(b.class)
		d.give(b)
	}
	return n
}

// give returns a block.
func (d *Accelerator) give(b *block) {
	d.roll.strike(b)
	d.raw.Give(b.addr, b.class)
	_ = d.gone(1) // who releases a buffer has no use for why a closed device could not end
}

// gone counts blocks that are no longer taken. After Close, the last ends the memory.
func (d *Accelerator) gone(n int) error {
	d.mu.Lock()
	d.taken -= n
	end := d.closed && d.taken == 0
	d.mu.Unlock()
	if !end {
		return nil
	}
	return d.raw.Close()
}

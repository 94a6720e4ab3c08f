package device

import (
	"errors"
	"runtime"
	"runtime/metrics"
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
		look := try == 1 && d.garbage.sum() > 0
		if look {
			collect()
		}
		if d.Trim() > 0 || look {
			at, err = d.raw.Take(n)
		}
	}
	return at, err
}

// collect has the collector find what nobody reaches, and waits until the clean-ups of that have
// run, in whatever order, but not for long where they stand still.
func collect() {
	runtime.GC()
	queued, ran := cleanUps()
	for since := time.Now(); ran < queued && time.Since(since) < 100*time.Millisecond; {
		time.Sleep(20 * time.Microsecond)
		if _, now := cleanUps(); now != ran {
			ran, since = now, time.Now()
		}
	}
}

// cleanUps is how many clean-ups were queued in this process, and how many have run.
func cleanUps() (queued, ran uint64) {
	s := []metrics.Sample{{Name: "/gc/cleanups/queued:cleanups"}, {Name: "/gc/cleanups/executed:cleanups"}}
	metrics.Read(s)
	return s[0].Value.Uint64(), s[1].Value.Uint64()
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

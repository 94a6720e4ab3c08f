package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

// work is what a stage does with a micro-batch.
type work int

const (
	backwards work = iota
	forwards
	works
)

// desk has a place for one: a stage computes one thing at a time, as an accelerator would, and of
// those that wait a backward goes first, in their order otherwise. So memory is given back before
// more is taken: 1F1B. Safe for concurrent use.
type desk struct {
	mu    sync.Mutex
	turn  int // counts who had the place
	taken bool
	doing work
	since time.Time
	spent [works]time.Duration
	lines [works][]chan int
}

// waitTurn waits for the place and gives the number of its turn. Who took it must leave it.
func (d *desk) waitTurn(c context.Context, w work) (turn int, err error) {
	d.mu.Lock()
	if !d.taken {
		defer d.mu.Unlock()
		return d.sit(w), nil
	}
	called := make(chan int, 1)
	d.lines[w] = append(d.lines[w], called)
	d.mu.Unlock()
	select {
	case turn = <-called:
		return turn, nil
	case <-c.Done():
	}
	d.mu.Lock()
	if at := slices.Index(d.lines[w], called); at >= 0 {
		d.lines[w] = slices.Delete(d.lines[w], at, at+1)
	} else { // its turn came at the same time
		d.rise()
	}
	d.mu.Unlock()
	return 0, context.Cause(c)
}

// leave ends a turn; it does nothing where it has ended.
func (d *desk) leave(turn int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.taken && d.turn == turn {
		d.rise()
	}
}

// done ends the turn that is.
func (d *desk) done() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.taken {
		d.rise()
	}
}

func (d *desk) sit(w work) (turn int) {
	d.turn++
	d.taken, d.doing, d.since = true, w, time.Now()
	return d.turn
}

// rise calls the next.
func (d *desk) rise() {
	d.spent[d.doing] += time.Since(d.since)
	d.taken = false
	for w, line := range d.lines {
		if len(line) > 0 {
			d.lines[w] = line[1:]
			line[0] <- d.sit(work(w))
			return
		}
	}
}

// busy gives the seconds spent since it was last asked.
func (d *desk) busy() (b busy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b = busy{d.spent[forwards].Seconds(), d.spent[backwards].Seconds()}
	d.spent = [works]time.Duration{}
	return b
}

// busy is how long a stage computed, in seconds.
type busy struct{ Forward, Backward float64 }

func (b busy) all() float64 { return b.Forward + b.Backward }

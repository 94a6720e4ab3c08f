package cuda

import (
	"errors"

	"github.com/weft-project/weft/device"
)

// Access is what a run does with a buffer.
type Access uint8

// The kinds of access, of which a buffer may have both.
const (
	Read Access = 1 << iota
	Write
)

// Use is what a run does. It is kept between runs.
type Use struct {
	Access []Access // with each of its buffers; with those beyond it does nothing
	Light  bool     // it is not worth a stream of its own
	Faults bool     // its kernels name the fault record
	Steps  bool     // and do nothing where that tells of a fault
}

// Work is what a run puts into a stream, in the order of that alone.
type Work interface{ Submit(s Stream) error }

// Run submits work that uses the blocks of buffers, and of a scratch, if any, as is said: on a stream of kernels, after all that it depends on. The caller keeps
// the buffers reachable meanwhile. It fails where a step would go by what came of a fault.
func (g *GPU) Run(w Work, u *Use, bufs []*device.Buffer, scratch *device.Scratch) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var from, need clock
	g.needs(u, bufs, &from, &need)
	stream, follows := g.order.pick(&from, &need, u.Light)
	if scratch != nil {
		g.noted(scratch.Note()).use.before(&need, true)
	}
	if u.Steps && g.telling.open() {
		if after := g.order.after(&need); g.telling.due(&after, &g.telling.seen) {
			g.telling.tell(&after, &g.order.chain, &g.order.head)
			return g.telling.last()
		}
	}
	n := g.order.submit(stream, &need, follows, u.Light)
	for k, a := range u.Access {
		if a != 0 {
			g.noted(bufs[k].Note()).use.used(stream, n, a&Write != 0)
		}
	}
	if scratch != nil {
		g.noted(scratch.Note()).use.used(stream, n, true)
	}
	if u.Faults {
		g.telling.named[stream] = n
	}
	if err := g.obey(); err != nil {
		return err
	}
	return w.Submit(g.streams[stream])
}

// needs is what a run comes after; from is what leads to what it reads.
func (g *GPU) needs(u *Use, bufs []*device.Buffer, from, need *clock) {
	for k, a := range u.Access {
		if a == 0 || bufs[k] == nil {
			continue
		}
		h := &g.noted(bufs[k].Note()).use
		if a&Read != 0 {
			from.raise(h.writer, h.wrote)
		}
		h.before(need, a&Write != 0)
	}
}

// Where is the stream on which a run would go now, as a hint to [device.Accelerator.AllocFor]. Buffers that are nil are to be allocated.
func (g *GPU) Where(u *Use, bufs []*device.Buffer) any {
	g.mu.Lock()
	defer g.mu.Unlock()
	var from, need clock
	g.needs(u, bufs, &from, &need)
	stream, _ := g.order.pick(&from, &need, u.Light)
	return uint8(stream)
}

var _ device.Noter = (*GPU)(nil)

// Note is Noter's.
func (g *GPU) Note(at uintptr) any {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.blocks.of(at)
}

// Fits is Noter's. The hint is Where's.
func (g *GPU) Fits(note, hint any) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	stream, ok := hint.(uint8)
	return ok && g.order.idle(&g.noted(note).use, int(stream))
}

func (g *GPU) noted(note any) *block {
	if b, ok := note.(*block); ok {
		return b
	}
	return &g.blocks.other
}

// obey carries out what order has decided. What fails here has lost the device, or it is closed: nothing is submitted any more, as what order knows may not be so.
func (g *GPU) obey() error {
	for _, op := range g.order.ops {
		if g.broken != nil {
			break
		}
		e := g.events[op.source][op.event]
		if op.wait {
			g.broken = g.streams[op.stream].Wait(e)
		} else {
			g.broken = g.streams[op.stream].Record(e)
		}
	}
	g.order.ops = g.order.ops[:0]
	return g.broken
}

// Sync waits for all that was submitted.
func (g *GPU) Sync() error {
	g.mu.Lock()
	all := g.order.head
	g.mu.Unlock()
	var errs []error
	for _, s := range g.streams[:sources] {
		if s != nil {
			errs = append(errs, s.Sync())
		}
	}
	err := errors.Join(errs...)
	if err == nil {
		g.reached(&all)
	}
	return err
}

// reached notes what the host has seen the end of.
func (g *GPU) reached(all *clock) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.order.finished(all)
}

// Fence records an event after all that was submitted, and before all that is submitted from now on: for who measures.
func (g *GPU) Fence(e Event) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.order.head
	g.order.wait(marker, &all)
	if err := g.obey(); err != nil {
		return err
	}
	errs := []error{g.streams[marker].Record(e)}
	for k, s := range g.streams[:sources] {
		if s != nil {
			errs = append(errs, s.Wait(e))
			g.order.known[k].join(&all)
		}
	}
	return errors.Join(errs...)
}

// awaited is points that the host waits for.
type awaited struct {
	g      *GPU
	points []point
}

// awaitLocked begins to wait for need.
func (g *GPU) awaitLocked(need *clock) (awaited, error) {
	a := awaited{g, g.order.points(need, &g.order.done, -1, nil)}
	return a, g.obey()
}

// wait may wait for later work, too, where an event has been used again.
func (a awaited) wait() error {
	for k := range a.points {
		p := &a.points[k]
		if err := a.g.events[p.source][p.event].Sync(); err != nil {
			return err
		}
		a.g.reached(&p.at)
	}
	return nil
}

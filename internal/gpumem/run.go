package gpumem

import (
	"cmp"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

// Access is what a run does with a buffer.
type Access uint8

// The kinds of access, of which a buffer may have several.
const (
	Read    Access = 1 << iota
	Write          // all of it, unless it is also read
	Stepped        // where the fault record tells of something, what is written is what was there
)

// Use is what a run does. It is kept between runs.
type Use struct {
	Access []Access // with each of its buffers; with those beyond it does nothing
	Light  bool     // it is not worth a stream of its own
	Old    []int    // for those that are stepped, the buffer with the value before
	Faults bool     // its kernels may write the fault record
	Steps  bool     // some buffers are stepped
}

// Work is what a run puts into a stream, in the order of that alone. Where its kernels meet a fault
// they raise a flag in the fault record; what is stepped stays what it was where a flag is up that
// is to be heeded: one of runs that it goes by.
type Work interface {
	Flag() uint8 // its number, from GPU.NewFlag
	Submit(s cuda.Stream, heed uint64) error
}

// Run submits work that uses the blocks of buffers, and of a scratch, if any, as is said: on a
// stream of kernels, after all that it depends on. The caller keeps the buffers reachable
// meanwhile. It fails where a step would go by what came of a fault.
func (g *GPU) Run(w Work, u *Use, bufs []*device.Buffer, scratch *device.Scratch) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var from, need clock
	g.needs(u, bufs, &from, &need)
	stream, follows := g.order.pick(&from, &need, u.Light)
	if scratch != nil {
		g.noted(scratch.Note()).use.before(&need, true)
	}
	if u.Steps {
		if err := g.refusedLocked(u, bufs); err != nil {
			return err
		}
	}
	came := g.came(u, bufs)
	n := g.order.submit(stream, &need, follows, u.Light)
	if u.Faults {
		g.telling.asked(&came, stream, n, w.Flag())
	}
	var heed uint64
	if u.Steps {
		heed = came.flags
	}
	for k, a := range u.Access {
		if a == 0 {
			continue
		}
		b := g.noted(bufs[k].Note())
		b.use.used(stream, n, a&Write != 0)
		switch {
		case a&Stepped != 0:
			g.telling.noteStep(&b.origin, &g.noted(bufs[u.Old[k]].Note()).origin, heed, stream, n)
		case a&Write != 0:
			b.origin = came
		}
	}
	if scratch != nil {
		g.noted(scratch.Note()).use.used(stream, n, true)
	}
	if err := g.obey(); err != nil {
		return err
	}
	return w.Submit(g.streams[stream], heed)
}

// refusedLocked is why nothing is to be stepped.
func (g *GPU) refusedLocked(u *Use, bufs []*device.Buffer) (err error) {
	if !g.faulted.Load() {
		return nil
	}
	for k, a := range u.Access {
		if a != 0 {
			err = cmp.Or(err, g.noted(bufs[k].Note()).faultFor(true))
		}
	}
	return err
}

// came is the origin of what a run writes, but for the run.
func (g *GPU) came(u *Use, bufs []*device.Buffer) (all origin) {
	for k, a := range u.Access {
		if a&(Read|Stepped) != 0 {
			g.telling.depend(&all, &g.noted(bufs[k].Note()).origin)
		}
	}
	return all
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

// Where is the stream on which a run would go now, as a hint to [device.Accelerator.AllocFor].
// Buffers that are nil are to be allocated.
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

// Fits is Noter's. The hint is Where's, or device.ForUpload.
func (g *GPU) Fits(note, hint any) bool {
	stream, ok := hint.(uint8)
	if _, up := hint.(device.ForUpload); up {
		stream, ok = uploads, true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return ok && g.order.idle(&g.noted(note).use, int(stream))
}

// Fresh is Noter's.
func (g *GPU) Fresh(note any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.noted(note).origin = origin{}
}

// Known is Noter's.
func (g *GPU) Known(note any) error {
	if !g.faulted.Load() {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.noted(note).faultFor(true)
}

// Like is Noter's.
func (g *GPU) Like(note, of any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.noted(note).like(&g.noted(of).origin)
}

func (g *GPU) noted(note any) *block {
	if b, ok := note.(*block); ok {
		return b
	}
	return &g.blocks.other
}

// obey carries out what order has decided. What fails here has lost the device, or it is closed:
// nothing is submitted any more, as what order knows may not be so.
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
	err := finish(g.streams[:sources])
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

// Fence records an event after all that was submitted, and before all that is submitted from now
// on: for who measures.
func (g *GPU) Fence(e cuda.Event) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.order.head
	g.order.wait(marker, &all)
	if err := g.obey(); err != nil {
		return err
	}
	err := g.streams[marker].Record(e)
	if err == nil {
		err = g.follow(g.streams[:sources], e)
	}
	if err != nil {
		return err
	}
	for k, s := range g.streams[:sources] {
		if s != nil {
			g.order.known[k].advanceTo(&all)
		}
	}
	return nil
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

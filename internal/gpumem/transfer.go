package gpumem

import (
	"errors"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

// Move is Memory's.
func (g *GPU) Move(dst, src uintptr, n int) error {
	return g.Compute(func(s cuda.Stream) error { return s.Copy(dst, src, n) }, true, dst, src)
}

// Compute submits work that reads memory at some addresses and writes memory at one, which may be
// among them, to a stream of kernels, after all that it depends on. Light work is not worth a
// stream of its own.
func (g *GPU) Compute(submit func(s cuda.Stream) error, light bool, dst uintptr, src ...uintptr) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var from, need clock
	for _, at := range src {
		use := &g.blocks.of(at).use
		use.before(&from, false)
		use.before(&need, false)
	}
	g.blocks.of(dst).use.before(&need, true)
	stream, follows := g.order.pick(&from, &need, light)
	return g.submitLocked(submit, stream, &need, follows, light, dst, src...)
}

// Pass is Exporter's.
func (g *GPU) Pass(dst, src uintptr, n int) error {
	need := g.wrote(src, n)
	need.advanceTo(g.uses(dst))
	rest := need
	rest[shares] = 0
	if err := g.await(&rest); err != nil { // here, and not on the stream, where other copies would wait, too
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.submitLocked(func(s cuda.Stream) error { return s.Copy(dst, src, n) }, shares, &need, false, false, dst, src)
}

// submitLocked submits work to a source, after need.
func (g *GPU) submitLocked(submit func(s cuda.Stream) error, source int, need *clock, follows, light bool, dst uintptr, src ...uintptr) error {
	at, to := g.order.submit(source, need, follows, light), g.blocks.of(dst)
	for _, from := range src {
		of := g.blocks.of(from)
		of.use.used(source, at, false)
		g.telling.depend(&to.origin, &of.origin)
	}
	to.use.used(source, at, true)
	if err := g.obey(); err != nil {
		return err
	}
	return submit(g.streams[source])
}

// Download is Memory's. It waits for what wrote the bytes alone, or for all where no bytes are
// asked for. What a kernel found wrong before, and they may have come of, is its error: a
// [FaultError], or what the watcher says.
//
// There are two streams. One may stand waiting for kernels. Who finds it taken waits here instead,
// and then takes the other, where nothing stands for long: so what is ready never waits for what is
// not.
func (g *GPU) Download(dst []byte, at uintptr) error {
	need := g.wrote(at, len(dst))
	stream, through := early, &g.down[0]
	if !through.mu.TryLock() {
		stream, through = ready, &g.down[1]
		if err := g.await(&need); err != nil {
			return err
		}
		through.mu.Lock()
	}
	defer through.mu.Unlock()
	of := []uintptr{at}
	if len(dst) == 0 {
		of = nil
	}
	look, err := g.look(stream, &need, of...)
	if err != nil {
		return err
	}
	s := g.streams[stream]
	if err = through.pieces(len(dst), func(p *piece, from, to int) error {
		return errors.Join(s.CopyOut(p.mem[:to-from], at+uintptr(from)), s.Record(p.done))
	}, func(p *piece, from, to int) {
		copy(dst[from:to], p.mem)
	}); err != nil {
		look.drop()
		return err
	}
	return look.end()
}

// wrote is what wrote n bytes; all, where they are none.
func (g *GPU) wrote(at uintptr, n int) (need clock) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n == 0 {
		return g.order.head
	}
	g.blocks.of(at).use.before(&need, false)
	return need
}

// await has the host wait for need.
func (g *GPU) await(need *clock) error {
	g.mu.Lock()
	a, err := g.awaitLocked(need)
	g.mu.Unlock()
	if err != nil {
		return err
	}
	return a.wait()
}

var _ device.Checker = (*GPU)(nil)

// Mark is Exporter's.
func (g *GPU) Mark(of ...uintptr) (func() error, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var need clock
	for _, at := range of {
		g.blocks.of(at).use.before(&need, true)
	}
	if len(of) == 0 {
		need = g.order.head
	}
	a, err := g.awaitLocked(&need)
	if err != nil {
		return nil, err
	}
	return a.wait, nil
}

// Check is Exporter's. What it costs beside Mark is a copy of the fault record.
func (g *GPU) Check(of ...uintptr) (func() error, error) {
	if len(of) == 0 {
		g.mu.Lock()
		all := g.order.head
		g.mu.Unlock()
		look, err := g.look(marker, &all)
		if err != nil {
			return nil, err
		}
		return look.end, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var need clock
	for _, at := range of {
		g.blocks.of(at).use.before(&need, false)
	}
	a, err := g.awaitLocked(&need)
	if err != nil {
		return nil, err
	}
	return func() error {
		if err := a.wait(); err != nil {
			return err
		}
		look, err := g.look(ready, &need, of...) // it stands behind no kernel
		if err != nil {
			return err
		}
		return look.end()
	}, nil
}

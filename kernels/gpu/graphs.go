package gpu

import (
	"bytes"
	"errors"
	"runtime"
	"slices"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/gpumem"
)

const (
	graphFrom  = 4   // launches that are worth a graph
	graphsKept = 64  // per sequence: its buffers take turns, and a model has many layers of a kind
	graphsVain = 64  // graphs made before it is asked whether they are used
	graphsRest = 256 // runs for which none are made after they were not, or after there was no memory for one
)

// graphs makes the graphs of a GPU, on a stream of their own, so that what others submit meanwhile
// is not recorded. They are replayed on the stream of the run. A graph is for one set of addresses:
// so two replays of it write the same memory, and the GPU orders them.
type graphs struct {
	gpu   *gpumem.GPU
	tally *tally

	mu     sync.Mutex
	stream cuda.Stream
	sets   map[*graphSet]struct{} // those that have graphs
	closed bool
}

// graphSet is the graphs of one sequence: one for each set of addresses that it lately ran on
// twice.
type graphSet struct {
	home *graphs

	mu       sync.Mutex
	slots    []graphSlot // the latest first
	made     int         // since it last rested
	replayed int
	rest     int  // runs for which it makes no graphs
	known    bool // to home
	off      bool // closed, or the driver cannot, for a reason that does not pass
}

type graphSlot struct {
	args  []byte     // all that makes one run differ from another
	graph cuda.Graph // nil: seen once
	asks  bool       // it may meet a fault, and has a flag for that
	flag  uint8
}

// submit submits a sequence's launches with the arguments of the frame's list, as a graph where
// they have come before, unless they heed other runs' flags.
func (s *graphSet) submit(q *sequence, f *frame, bufs []*device.Buffer, scratch *device.Scratch) error {
	f.graph = nil
	if q.use.Faults {
		f.flag = s.home.gpu.NewFlag()
	}
	if len(f.list.Launches) < graphFrom || q.use.Steps {
		return s.home.gpu.Run(f, &q.use, bufs, scratch)
	}
	s.mu.Lock()
	defer s.mu.Unlock() // a graph is not closed before it is submitted
	if !s.off {
		s.find(q, f)
	}
	err := s.home.gpu.Run(f, &q.use, bufs, scratch)
	f.graph = nil
	return err
}

// find gives a frame the graph for its list's arguments, where they have come before.
func (s *graphSet) find(q *sequence, f *frame) {
	k := slices.IndexFunc(s.slots, func(x graphSlot) bool { return bytes.Equal(x.args, f.list.Args) })
	switch {
	case k >= 0 && s.slots[k].graph != nil:
		s.replayed++
	case s.rest > 0:
		s.rest--
		return
	case k < 0:
		s.note(&f.list)
		return
	case !s.record(k, q, f):
		return
	}
	slot := s.slots[k]
	copy(s.slots[1:k+1], s.slots[:k])
	s.slots[0] = slot
	f.graph, f.flag = slot.graph, slot.flag
}

// record makes a slot's graph. It says false where there is none: then the set rests, if that may
// pass, or is off.
func (s *graphSet) record(k int, q *sequence, f *frame) bool {
	x := &s.slots[k]
	if x.asks = q.use.Faults; x.asks {
		x.flag = s.home.gpu.KeepFlag()
	}
	f.mark(x.flag, 0)
	defer f.mark(0, 0)
	graph, err := s.home.capture(&f.list)
	if err != nil {
		s.forget(x)
		why := whyGraphMemory
		if s.rest, s.off = graphsRest, !errors.Is(err, device.ErrMemory); s.off {
			why = whyNoRecording
		}
		s.home.tally.add(workGraph, byLaunches, why, err)
		return false
	}
	s.home.tally.add(workGraph, byRecord, "", nil)
	x.graph = graph
	if s.made++; !s.known {
		s.known = true
		s.home.register(s, q)
	}
	return true
}

// note remembers arguments, in the place of those that were not used for the longest time.
func (s *graphSet) note(l *cuda.List) {
	if s.made >= graphsVain && s.replayed < 2*s.made {
		s.drop()
		s.made, s.replayed, s.rest = 0, 0, graphsRest
		s.home.tally.add(workGraph, byLaunches, whyGraphVain, nil)
		return
	}
	var x graphSlot
	if len(s.slots) < graphsKept {
		s.slots = append(s.slots, x)
	} else {
		x = s.slots[graphsKept-1]
		s.closeSlot(&x)
	}
	x = graphSlot{args: append(x.args[:0], l.Args...)}
	copy(s.slots[1:], s.slots)
	s.slots[0] = x
}

// drop closes the graphs.
func (s *graphSet) drop() {
	for k := range s.slots {
		s.closeSlot(&s.slots[k])
	}
	s.slots = nil
}

// closeSlot closes a slot's graph, if it has one.
func (s *graphSet) closeSlot(x *graphSlot) {
	if x.graph != nil {
		_ = x.graph.Close()
		s.forget(x)
	}
}

// forget gives a slot's flag back, if it has one.
func (s *graphSet) forget(x *graphSlot) {
	if x.asks {
		s.home.gpu.DropFlag(x.flag)
		x.asks = false
	}
}

// close drops the graphs for good.
func (s *graphSet) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off = true
	s.drop()
}

// capture makes a graph of launches.
func (g *graphs) capture(l *cuda.List) (cuda.Graph, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, device.ErrClosed
	}
	if g.stream == nil {
		s, err := g.gpu.Driver().Stream()
		if err != nil {
			return nil, err
		}
		g.stream = s
	}
	return g.stream.Capture(func() error { return g.stream.Run(l) })
}

// register has a set closed when its sequence is gone, or the GPU is closed.
func (g *graphs) register(s *graphSet, q *sequence) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sets == nil {
		g.sets = map[*graphSet]struct{}{}
	}
	g.sets[s] = struct{}{}
	runtime.AddCleanup(q, func(s *graphSet) { g.forget(s) }, s)
}

func (g *graphs) forget(s *graphSet) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		s.close()
		delete(g.sets, s)
	}
}

func (g *graphs) Close() error {
	g.mu.Lock()
	g.closed = true
	sets, stream := g.sets, g.stream
	g.sets, g.stream = nil, nil
	g.mu.Unlock()
	for s := range sets {
		s.close()
	}
	if stream == nil {
		return nil
	}
	return errors.Join(stream.Close())
}

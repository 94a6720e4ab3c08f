package gpu

import (
	"encoding/binary"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/gpumem"
)

// sequence is launches over some buffers, in order. Runs at once have frames of their own.
type sequence struct {
	backend  *backend
	launches []cuda.Launch
	args     []byte // with zeros for addresses
	patches  []patch
	scratch  int
	hold     []*module
	idle     sync.Pool // of *frame
	graphs   *graphSet
	asked    *asked // nil where nothing can meet a bad index
	codes    []int  // where among the arguments the codes are that kernels report under
	heeds    []int  // and the flags that they heed
	use      gpumem.Use

	workspace bool                      // some of the scratch is a library's
	lean      func() (*sequence, error) // the same without that
}

// patch is an address among the arguments: some bytes into a buffer, into the scratch where that is
// −1, or into a copy, of which −2 is the first.
type patch struct {
	off, buf int
	add      uintptr
	tiles    *cuda.TensorMap // not nil: a map of what lies there, in its place
}

// mapped is a map among the arguments of a frame: where it is from, if it has been encoded.
type mapped struct {
	of *cuda.TensorMap
	at uintptr
}

// frame is what one run needs.
type frame struct {
	of    *sequence
	list  cuda.List
	graph cuda.Graph // in the place of the list, where not nil
	flag  uint8
	maps  map[int]mapped // by their place among the arguments
}

var _ gpumem.Work = (*frame)(nil)

// Flag is [gpumem.Work]'s.
func (f *frame) Flag() uint8 { return f.flag }

// Submit is [gpumem.Work]'s. A graph has its flag for good.
func (f *frame) Submit(s cuda.Stream, heed uint64) error {
	if f.graph != nil {
		return s.Replay(f.graph)
	}
	f.mark(f.flag, heed)
	defer f.mark(0, 0) // graphs are found by the arguments
	return s.Run(&f.list)
}

// mark writes a flag's number, and the flags that are heeded, which has its own, among the
// arguments.
func (f *frame) mark(flag uint8, heed uint64) {
	for _, off := range f.of.codes {
		binary.LittleEndian.PutUint32(f.list.Args[off+4:], uint32(flag))
	}
	if f.of.use.Faults {
		heed |= 1 << flag
	}
	for _, off := range f.of.heeds {
		binary.LittleEndian.PutUint64(f.list.Args[off:], heed)
	}
}

// builder makes a sequence.
type builder struct {
	*sequence
	list   cuda.List
	bodies map[int]string // of launches that are generated kernels
	copies copies
}

func (b *backend) build() *builder {
	return &builder{bodies: map[int]string{}, sequence: &sequence{backend: b, graphs: &graphSet{home: &b.graphs}}}
}

// sequence makes one, and is ready to make it again where there is no memory for a library's
// workspace.
func (b *backend) sequence(add func(*builder) error) (*sequence, error) {
	made := func() (*sequence, error) {
		s := b.build()
		if err := add(s); err != nil {
			return nil, err
		}
		return s.done()
	}
	b.lowering.RLock()
	defer b.lowering.RUnlock()
	q, err := made()
	if err == nil && q.workspace {
		q.lean = sync.OnceValues(func() (*sequence, error) {
			b.lowering.Lock()
			defer b.lowering.Unlock()
			b.lean = true
			defer func() { b.lean = false }()
			return made()
		})
	}
	return q, err
}

// spot is where a result or an operand lies: n bytes, from off on, of buffer buf.
type spot struct{ buf, off, n int }

// appendCode appends the launches of a code; fault is what it reports under, or 0.
func (s *builder) appendCode(c *code, outs, ins []spot, fault uint64) {
	if fault != 0 && s.asked == nil {
		s.asked = new(asked)
	}
	if fault != 0 {
		s.asked.codes = append(s.asked.codes, fault)
	}
	n := 0
	for _, l := range c.launches {
		n += len(l.args)
	}
	s.list.Args, s.patches = slices.Grow(s.list.Args, 8*n+16*len(c.launches)), slices.Grow(s.patches, n)
	ids := make([]int, c.copies)
	for _, l := range c.launches {
		if l.makes.bytes > 0 {
			from := l.args[1].spot(outs, ins)
			from.n = l.makes.reads
			var known bool
			if ids[l.args[0].index], known = s.copies.of(from, l.makes, len(s.list.Launches)); known {
				continue
			}
		}
		if l.grid[0] == 0 || l.grid[1] == 0 || l.grid[2] == 0 {
			continue // it has nothing to do
		}
		if l.fn == nil {
			s.bodies[len(s.list.Launches)] = l.body
		}
		s.list.Add(l.fn, l.grid, l.block, l.shared)
		for _, a := range l.args {
			switch a.kind {
			case argNone:
				s.list.Addr(0)
			case argOut, argIn, argScratch:
				p := a.spot(outs, ins)
				s.patches = append(s.patches, patch{s.room(a), p.buf, uintptr(p.off), a.tiles})
			case argCopy:
				id := ids[a.index]
				s.copies.all[id].last = len(s.list.Launches) - 1
				s.patches = append(s.patches, patch{s.room(a), -2 - id, uintptr(a.value), a.tiles})
			case argFault:
				s.use.Faults = s.use.Faults || l.reports()
				s.list.Addr(s.backend.gpu.FaultAddr())
			case argCode:
				s.codes = append(s.codes, s.list.U64(fault))
			case argHeed:
				s.heeds = append(s.heeds, s.list.U64(0))
			case arg32:
				s.list.U32(uint32(a.value))
			case arg64:
				s.list.U64(a.value)
			}
		}
	}
	s.scratch, s.workspace = max(s.scratch, c.scratch), s.workspace || c.workspace
	for _, o := range outs {
		s.copies.wrote(o)
	}
	s.uses(outs, gpumem.Write)
	s.uses(ins, gpumem.Read)
	for k, at := range c.old {
		s.steps(outs[k].buf, ins[at].buf)
	}
}

// room adds an argument that is an address, or a map of what lies there.
func (s *builder) room(a arg) (off int) {
	if a.tiles != nil {
		return s.list.Block(cuda.MapBytes)
	}
	return s.list.Addr(0)
}

// steps notes that a buffer is stepped, and where the value before is.
func (s *builder) steps(buf, old int) {
	s.use.Steps = true
	s.use.Access[buf] |= gpumem.Stepped
	for len(s.use.Old) <= buf {
		s.use.Old = append(s.use.Old, 0)
	}
	s.use.Old[buf] = old
}

// uses notes what happens to the buffers of results or operands.
func (s *builder) uses(at []spot, a gpumem.Access) {
	for _, x := range at {
		for len(s.use.Access) <= x.buf {
			s.use.Access = append(s.use.Access, 0)
		}
		s.use.Access[x.buf] |= a
	}
}

// spot is where an address lies; −1 is the scratch.
func (a arg) spot(outs, ins []spot) spot {
	s := spot{buf: -1}
	switch a.kind {
	case argOut:
		s = outs[a.index]
	case argIn:
		s = ins[a.index]
	}
	s.off += int(a.value)
	return s
}

// faults says whether a code reports faults.
func (c *code) faults() bool {
	return slices.ContainsFunc(c.launches, launch.reports)
}

// reports says whether a launch may write the fault record.
func (l launch) reports() bool {
	return slices.ContainsFunc(l.args, func(a arg) bool { return a.kind == argCode })
}

// done loads what is generated and gives the sequence.
func (s *builder) done() (*sequence, error) {
	q := s.sequence
	s.place()
	var at []int
	var bodies []string
	for _, k := range slices.Sorted(maps.Keys(s.bodies)) {
		at, bodies = append(at, k), append(bodies, s.bodies[k])
	}
	fns, hold, err := q.backend.made.load(bodies)
	if err != nil {
		return nil, err
	}
	for k, fn := range fns {
		s.list.Launches[at[k]].Func = fn
	}
	q.launches, q.args, q.hold = s.list.Launches, s.list.Args, hold
	q.use.Light = len(q.launches) < graphFrom
	q.idle.New = func() any {
		return &frame{of: q, list: cuda.List{Launches: q.launches, Args: slices.Clone(q.args)}}
	}
	return q, nil
}

// run submits the launches, over buffers whose sizes have been checked.
func (q *sequence) run(bufs []*device.Buffer) error {
	if err := q.backend.dev.Holds("launch", bufs); err != nil || len(q.launches) == 0 {
		return err
	}
	if err := q.backend.enter("launch"); err != nil {
		return err
	}
	defer q.backend.inside.Leave()
	if q.asked != nil {
		q.backend.faults.note(q.asked)
	}
	var at uintptr
	var scratch device.Scratch
	var borrowed *device.Scratch
	if q.scratch > 0 {
		var err error
		if scratch, err = q.backend.dev.BorrowFor(q.scratch, q.backend.gpu.Where(&q.use, bufs)); err != nil {
			if lean := q.leaner(err); lean != nil {
				return lean.run(bufs)
			}
			return err
		}
		defer scratch.Return() // what uses it later is submitted later
		borrowed, at = &scratch, scratch.Addr()
	}
	f := q.idle.Get().(*frame)
	for _, p := range q.patches {
		base := at
		if p.buf >= 0 {
			base = bufs[p.buf].Addr()
		}
		if p.tiles == nil {
			f.list.Patch(p.off, base+p.add)
		} else if err := f.encode(p, base+p.add); err != nil {
			q.idle.Put(f)
			return &device.Error{Device: q.backend.dev.ID(), Op: "launch", Err: err}
		}
	}
	err := q.graphs.submit(q, f, bufs, borrowed)
	runtime.KeepAlive(bufs)
	q.idle.Put(f)
	if err != nil {
		return &device.Error{Device: q.backend.dev.ID(), Op: "launch", Err: err}
	}
	return nil
}

// leaner is the sequence to run where there was no memory for the scratch: one that needs less.
// nil: there is none.
func (q *sequence) leaner(err error) *sequence {
	if !q.workspace || !errors.Is(err, device.ErrMemory) {
		return nil
	}
	lean, err := q.lean()
	if err != nil || lean.scratch >= q.scratch {
		return nil
	}
	return lean
}

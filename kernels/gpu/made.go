package gpu

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"weak"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/gpumem"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/gpu/internal/ahead"
	"github.com/weft-project/weft/kernels/gpu/internal/gen"
)

const (
	// recentModules is how many modules of generated kernels are kept loaded though nothing uses
	// them.
	recentModules = 256
	// deadModules is how many wait to be unloaded, which the host has to wait for.
	deadModules = 64
)

// module is generated kernels. It is unloaded some time after the last sequence that holds it is
// gone.
type module struct{ cuda.Module }

// made are the generated kernels that are loaded, by their text.
type made struct {
	gpu   *gpumem.GPU
	tally *tally
	ahead ahead.Shelf

	mu     sync.Mutex
	byBody map[string]madeKernel
	recent [recentModules]*module
	next   int
	loaded map[cuda.Module]struct{} // all, for close
	dead   []cuda.Module
	closed bool
}

type madeKernel struct {
	fn cuda.Func
	of weak.Pointer[module]
}

// load gives the kernels of bodies, and the modules that whoever launches them holds. Of those that
// are not there yet, each that there is machine code for is a module, and the others become one.
func (d *made) load(bodies []string) (fns []cuda.Func, hold []*module, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fns = make([]cuda.Func, len(bodies))
	var missing []gen.Kernel
	var at []int
	for k, body := range bodies {
		known := d.byBody[body]
		if m := known.of.Value(); m != nil {
			fns[k], hold = known.fn, append(hold, m)
		} else {
			missing, at = append(missing, gen.Kernel{Body: body}), append(at, k)
		}
	}
	if len(missing) == 0 {
		return fns, hold, nil
	}
	if err := d.bury(deadModules); err != nil {
		return nil, nil, err
	}
	more, err := d.loadMissing(missing)
	if err != nil {
		return nil, nil, err
	}
	for k, x := range missing {
		fns[at[k]] = d.byBody[x.Body].fn
	}
	return fns, append(hold, more...), nil
}

// loadMissing loads kernels that are not there.
func (d *made) loadMissing(ks []gen.Kernel) (hold []*module, err error) {
	hold, rest, refused, err := d.loadAhead(ks)
	if err != nil || len(rest) == 0 {
		return hold, err
	}
	text, names := gen.Module(rest)
	m, err := d.loadModule([]byte(text), rest, names)
	if err == nil {
		d.compiled(refused)
	}
	return append(hold, m), err
}

// loadAhead loads those of kernels that there is machine code for, and gives the rest. refused is
// why the driver took none.
func (d *made) loadAhead(ks []gen.Kernel) (hold []*module, rest []gen.Kernel, refused, err error) {
	if d.gpu.Driver().Info().Simulated {
		return nil, ks, nil, nil
	}
	known := map[string]bool{}
	for k, x := range ks {
		if known[x.Body] {
			continue
		}
		known[x.Body] = true
		cubin := d.ahead.Cubin(x)
		if cubin == nil || refused != nil {
			rest = append(rest, x)
			continue
		}
		_, name := ahead.Text(x)
		m, err := d.loadModule(cubin, ks[k:k+1], []string{name})
		switch {
		case errors.Is(err, cuda.ErrImage):
			rest, refused = append(rest, x), err
		case err != nil:
			return nil, nil, nil, err
		default:
			hold = append(hold, m)
			d.tally.add(workModule, byCubin, "", nil)
		}
	}
	return hold, rest, refused, nil
}

// compiled counts a module that the driver compiles.
func (d *made) compiled(refused error) {
	switch {
	case d.gpu.Driver().Info().Simulated:
	case refused != nil:
		d.tally.add(workModule, byPTX, whyFailedCubin, refused)
	default:
		d.tally.add(workModule, byPTX, whyGenerated, nil)
	}
}

// loadModule loads kernels, by their names in a module, and holds it.
func (d *made) loadModule(image []byte, ks []gen.Kernel, names []string) (*module, error) {
	loaded, err := d.gpu.Driver().Load(image)
	if err != nil {
		return nil, fmt.Errorf("generated kernels: %w", err)
	}
	if d.byBody == nil {
		d.byBody, d.loaded = map[string]madeKernel{}, map[cuda.Module]struct{}{}
	}
	m := &module{loaded}
	d.loaded[loaded] = struct{}{}
	d.recent[d.next] = m
	d.next = (d.next + 1) % recentModules
	runtime.AddCleanup(m, d.died, loaded)
	for k, x := range ks {
		fn, err := loaded.Func(names[k], 0)
		if err != nil {
			return nil, fmt.Errorf("generated kernel: %w", err)
		}
		d.byBody[x.Body] = madeKernel{fn, weak.Make(m)}
	}
	return m, nil
}

// died notes that nothing can launch a module's kernels any more; those under way may still run.
func (d *made) died(m cuda.Module) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.dead = append(d.dead, m)
	}
}

// bury unloads what died, where that is more than some.
func (d *made) bury(most int) error {
	if len(d.dead) <= most {
		return nil
	}
	err := d.gpu.Sync()
	for body, k := range d.byBody {
		if k.of.Value() == nil {
			delete(d.byBody, body)
		}
	}
	for _, m := range d.dead {
		err = errors.Join(err, m.Unload())
		delete(d.loaded, m)
	}
	d.dead = nil
	return err
}

func (d *made) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	var errs []error
	for m := range d.loaded {
		errs = append(errs, m.Unload())
	}
	d.byBody, d.loaded, d.dead, d.recent = nil, nil, nil, [recentModules]*module{}
	return errors.Join(errs...)
}

// maxWritten bounds how many cases' kernels are remembered.
const maxWritten = 4096

// written is what was generated, by case: writing it takes longer than all else that preparing an
// instruction does.
type written struct {
	mu    sync.Mutex
	codes map[string]*code
}

// generate writes the kernels of an instruction that goes element by element. The code is shared.
func (b *backend) generate(i kernels.Instr, in []kernels.Type) (*code, error) {
	c := gen.Case{Instr: i, In: in}
	key := c.Key()
	b.written.mu.Lock()
	known := b.written.codes[key]
	b.written.mu.Unlock()
	if known != nil {
		return known, nil
	}
	g, err := c.Code()
	if errors.Is(err, gen.ErrUnknown) {
		return nil, unknown(i)
	}
	if err != nil {
		return nil, err
	}
	made := &code{scratch: g.Scratch}
	for _, k := range g.Kernels {
		l := made.call(nil, k.Blocks[0], k.Block)
		l.grid[1], l.body = uint32(k.Blocks[1]), k.Body
		for _, p := range k.Params {
			switch p.Of {
			case gen.In:
				l.arg(inArg(p.Index).plus(uint64(p.Off)))
			case gen.Out:
				l.arg(outArg(p.Index).plus(uint64(p.Off)))
			case gen.Scratch:
				l.arg(scratchArg(p.Off))
			}
		}
	}
	b.written.mu.Lock()
	defer b.written.mu.Unlock()
	if len(b.written.codes) >= maxWritten || b.written.codes == nil {
		b.written.codes = map[string]*code{}
	}
	b.written.codes[key] = made
	return made, nil
}

package gpu

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"weak"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/gpumem"
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
	gpu *gpumem.GPU

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

// load gives the kernels of bodies, and the modules that whoever launches them holds. Those that
// are not there yet become one module.
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
	text, names := gen.Module(missing)
	m, err := d.loadModule(text)
	if err != nil {
		return nil, nil, err
	}
	for k, x := range missing {
		fn, err := m.Func(names[k], 0)
		if err != nil {
			return nil, nil, fmt.Errorf("generated kernel: %w", err)
		}
		fns[at[k]] = fn
		d.byBody[x.Body] = madeKernel{fn, weak.Make(m)}
	}
	return fns, append(hold, m), nil
}

// loadModule loads a module.
func (d *made) loadModule(text string) (*module, error) {
	loaded, err := d.gpu.Driver().Load([]byte(text))
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

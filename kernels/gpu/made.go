package gpu

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"weak"

	"github.com/weft-project/weft/device/cuda"
)

const (
	// recentModules is how many generated modules are kept loaded though nothing uses them.
	recentModules = 256
	// deadModules is how many wait to be unloaded, which the host has to wait for.
	deadModules = 64
)

// module is generated kernels. It is unloaded some time after the last code that holds it is gone.
type module struct {
	cuda.Module
	text [sha256.Size]byte
}

// made are the generated modules that are loaded, by their text.
type made struct {
	gpu *cuda.GPU

	mu     sync.Mutex
	byText map[[sha256.Size]byte]weak.Pointer[module]
	recent [recentModules]*module
	next   int
	loaded map[cuda.Module]struct{} // all, for close
	dead   []cuda.Module
	closed bool
}

// load gives the module of a text. Who keeps its functions keeps the module.
func (d *made) load(text string) (*module, error) {
	key := sha256.Sum256([]byte(text))
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := d.byText[key].Value(); m != nil {
		return m, nil
	}
	if err := d.bury(deadModules); err != nil {
		return nil, err
	}
	loaded, err := d.gpu.Driver().Load([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("a generated module: %w", err)
	}
	m := &module{loaded, key}
	if d.byText == nil {
		d.byText, d.loaded = map[[sha256.Size]byte]weak.Pointer[module]{}, map[cuda.Module]struct{}{}
	}
	d.byText[key], d.loaded[loaded] = weak.Make(m), struct{}{}
	d.recent[d.next] = m
	d.next = (d.next + 1) % recentModules
	runtime.AddCleanup(m, func(loaded cuda.Module) { d.died(key, loaded) }, loaded)
	return m, nil
}

// died notes that nothing can launch a module's kernels any more; those under way may still run.
func (d *made) died(key [sha256.Size]byte, m cuda.Module) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	if d.byText[key].Value() == nil { // it was not loaded again
		delete(d.byText, key)
	}
	d.dead = append(d.dead, m)
}

// bury unloads what died, where that is more than some.
func (d *made) bury(most int) error {
	if len(d.dead) <= most {
		return nil
	}
	err := d.gpu.Compute().Sync()
	for _, m := range d.dead {
		err = errors.Join(err, m.Unload())
		delete(d.loaded, m)
	}
	d.dead = nil
	return err
}

func (d *made) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	var errs []error
	for m := range d.loaded {
		errs = append(errs, m.Unload())
	}
	d.byText, d.loaded, d.dead, d.recent = nil, nil, nil, [recentModules]*module{}
	return errors.Join(errs...)
}

// generated finds a kernel of a generated text; the code that launches it holds the module.
func (b *backend) generated(c *code, text, name string, shared int) (cuda.Func, error) {
	m, err := b.made.load(text)
	if err != nil {
		return nil, err
	}
	f, err := m.Func(name, shared)
	if err != nil {
		return nil, fmt.Errorf("generated kernel %s: %w", name, err)
	}
	c.hold = append(c.hold, m)
	return f, nil
}

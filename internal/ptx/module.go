package ptx

import (
	"fmt"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/ptx/simt"
)

// module is kernels that were loaded, with the variables of their text.
type module struct {
	m       *Machine
	kernels map[string]*simt.Kernel
	vars    []uint64
	gone    bool
}

// Load is Driver's. The image is PTX text; it may end with a zero byte.
func (m *Machine) Load(image []byte) (out cuda.Module, err error) {
	for len(image) > 0 && image[len(image)-1] == 0 {
		image = image[:len(image)-1]
	}
	err = m.do("load", func() error {
		mod, err := m.load(string(image))
		if err != nil {
			return fmt.Errorf("%w: %w", cuda.ErrImage, err)
		}
		out = mod
		return nil
	})
	return out, err
}

func (m *Machine) load(text string) (_ *module, err error) {
	c, err := m.conf.Texts.parsed(want{text, m.conf.Traffic})
	if err != nil {
		return nil, err
	}
	if c.target == 0 || c.target > m.conf.Arch || c.exact && c.target != m.conf.Arch {
		return nil, fmt.Errorf("text for sm_%d on a machine of %d", c.target, m.conf.Arch)
	}
	mod := &module{m: m, kernels: map[string]*simt.Kernel{}}
	defer func() {
		if err != nil {
			mod.unload()
		}
	}()
	at := make([]uint64, len(c.vars))
	for k, v := range c.vars {
		if v.Space == "shared" {
			continue
		}
		if v.Extern {
			return nil, fmt.Errorf("line %d: %s is of another module", v.Line, v.Name)
		}
		a, err := m.proc.Memory.Alloc(v.Bytes)
		if err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", v.Line, v.Name, err)
		}
		clear(a.Mem)
		copy(a.Mem, v.Init)
		a.ReadOnly = v.Space == "const"
		mod.vars = append(mod.vars, a.Base)
		at[k] = a.Base
	}
	kernels, err := c.kernels()
	if err != nil {
		return nil, err
	}
	for name, k := range kernels {
		mod.kernels[name] = k.Link(at)
	}
	return mod, nil
}

func (mod *module) unload() {
	for _, at := range mod.vars {
		_, _ = mod.m.proc.Memory.Remove(at)
	}
	mod.vars, mod.gone = nil, true
}

// Func is Module's.
func (mod *module) Func(name string, shared int) (f cuda.Func, err error) {
	err = mod.m.do("function", func() error {
		k := mod.kernels[name]
		if mod.gone || k == nil {
			return fmt.Errorf("%w: no kernel %s", cuda.ErrImage, name)
		}
		if limit := mod.m.Info().Shared; shared < 0 || k.Static+shared > limit {
			return fmt.Errorf("%w: %s wants %d bytes of shared memory, and has %d of its own; a block may have %d", cuda.ErrLaunch, name, shared, k.Static, limit)
		}
		f = &fn{mod: mod, shared: shared, Runner: simt.Runner{Kernel: k, Meter: mod.m.meter(name)}}
		return nil
	})
	return f, err
}

// Unload is Module's. It waits for all streams.
func (mod *module) Unload() error {
	return mod.m.do("unload", func() error {
		mod.m.drain()
		mod.unload()
		return nil
	})
}

var errGone = fmt.Errorf("%w: another machine's", device.ErrElsewhere)

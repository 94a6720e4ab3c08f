package ptx

import (
	"errors"
	"fmt"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

// module is kernels that were loaded, with the variables of their text.
type module struct {
	m       *Machine
	kernels map[string]*kernel
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
	src, err := parse(text)
	if err != nil {
		return nil, err
	}
	if src.target == 0 || src.target > m.conf.Arch {
		return nil, fmt.Errorf("text for sm_%d on a machine of %d", src.target, m.conf.Arch)
	}
	mod := &module{m: m, kernels: map[string]*kernel{}}
	defer func() {
		if err != nil {
			mod.drop()
		}
	}()
	globals := map[string]uint64{}
	for _, v := range src.vars {
		if v.space == "shared" {
			continue
		}
		if v.extern {
			return nil, fmt.Errorf("line %d: %s is of another module", v.line, v.name)
		}
		a, err := m.mem.alloc(v.bytes)
		if err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", v.line, v.name, err)
		}
		clear(a.mem)
		copy(a.mem, v.init)
		a.readOnly = v.space == "const"
		mod.vars = append(mod.vars, a.base)
		globals[v.name] = a.base
	}
	for _, f := range src.funcs {
		if !f.entry || !f.defined {
			continue
		}
		if mod.kernels[f.name], err = compile(src, globals, f, m.meter(f.name)); err != nil {
			return nil, err
		}
	}
	return mod, nil
}

func (mod *module) drop() {
	for _, at := range mod.vars {
		_, _ = mod.m.mem.remove(at)
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
		if limit := mod.m.Info().Shared; shared < 0 || k.static+shared > limit {
			return fmt.Errorf("%w: %s wants %d bytes of shared memory, and has %d of its own; a block may have %d", cuda.ErrLaunch, name, shared, k.static, limit)
		}
		f = &fn{mod: mod, k: k, shared: shared}
		return nil
	})
	return f, err
}

// Unload is Module's. It waits for all streams.
func (mod *module) Unload() error {
	return mod.m.do("unload", func() error {
		mod.m.settle()
		mod.drop()
		return nil
	})
}

// fn is a kernel that can be launched.
type fn struct {
	mod    *module
	k      *kernel
	shared int
	ready  *block // of the last launch
}

// Name is Func's.
func (f *fn) Name() string { return f.k.name }

// check refuses a launch that a driver would.
func (f *fn) check(m *Machine, l *cuda.Launch, args []byte) error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if f.mod.m != m || f.mod.gone {
		bad("its module is another machine's, or was unloaded")
	}
	most := [3]uint32{1<<31 - 1, 65535, 65535}
	for k, n := range l.Grid {
		if n == 0 || n > most[k] {
			bad("a grid of %v blocks, at most %v", l.Grid, most)
			break
		}
	}
	threads := uint64(1)
	for k, n := range l.Block {
		if n == 0 || n > [3]uint32{1024, 1024, 64}[k] {
			threads = 1 << 20
			break
		}
		threads *= uint64(n)
	}
	if threads > 1024 {
		bad("a block of %v threads, at most 1024 in sum and 64 in z", l.Block)
	} else if f.k.threads > 0 && threads > uint64(f.k.threads) {
		bad("a block of %d threads; the kernel is made for %d", threads, f.k.threads)
	}
	if int64(l.Shared) > int64(f.shared) {
		bad("%d bytes of shared memory, its function was made for %d", l.Shared, f.shared)
	}
	if l.Off < 0 || l.Len < 0 || l.Off > len(args) || l.Len > len(args)-l.Off {
		bad("arguments at %d of %d bytes, with %d bytes", l.Off, len(args), l.Len)
	} else if l.Len != f.k.pbytes {
		bad("%d bytes of arguments; its %d parameters have %d", l.Len, len(f.k.params), f.k.pbytes)
	}
	if len(errs) > 0 {
		return fmt.Errorf("%w: %s: %w", cuda.ErrLaunch, f.k.name, errors.Join(errs...))
	}
	return nil
}

// run does all blocks of a launch.
func (f *fn) run(m *Machine, l *cuda.Launch, args []byte) error {
	threads := int(l.Block[0] * l.Block[1] * l.Block[2])
	b := f.ready
	if b == nil || len(b.shared) != f.k.static+int(l.Shared) || len(b.warps) != (threads+31)/32 {
		b = newBlock(m, f.k, threads, f.k.static+int(l.Shared))
		f.ready = b
	}
	b.params, b.dim, b.grid, b.dynamic = args, l.Block, l.Grid, int(l.Shared)
	b.fault, b.steps, b.limit = nil, 0, m.conf.Steps
	b.launch = m.blocks + 1
	defer f.account(m, b)
	for z := range l.Grid[2] {
		for y := range l.Grid[1] {
			for x := range l.Grid[0] {
				b.id = [3]uint32{x, y, z}
				m.blocks++
				b.serial = m.blocks
				b.run(b.serial == b.launch)
				if b.fault != nil {
					return b.fault
				}
			}
		}
	}
	m.time += b.steps
	return nil
}

// account counts a launch.
func (f *fn) account(m *Machine, b *block) {
	m.steps += b.steps
	if t := f.k.meter; t != nil {
		t.Launches++
		t.Steps += b.steps
	}
}

var errGone = fmt.Errorf("%w: another machine's", device.ErrElsewhere)

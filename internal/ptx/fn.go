package ptx

import (
	"errors"
	"fmt"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/ptx/simt"
)

// fn is a kernel that can be launched.
type fn struct {
	mod    *module
	shared int
	simt.Runner
}

// Name is Func's.
func (f *fn) Name() string { return f.Kernel.Name }

// checkLaunch refuses a launch that a driver would.
func (f *fn) checkLaunch(m *Machine, l *cuda.Launch, args []byte) error {
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
	} else if f.Kernel.Threads > 0 && threads > uint64(f.Kernel.Threads) {
		bad("a block of %d threads; the kernel is made for %d", threads, f.Kernel.Threads)
	}
	if int64(l.Shared) > int64(f.shared) {
		bad("%d bytes of shared memory, its function was made for %d", l.Shared, f.shared)
	}
	if l.Off < 0 || l.Len < 0 || l.Off > len(args) || l.Len > len(args)-l.Off {
		bad("arguments at %d of %d bytes, with %d bytes", l.Off, len(args), l.Len)
	} else if l.Len != f.Kernel.ParamBytes {
		bad("%d bytes of arguments; its %d parameters have %d", l.Len, len(f.Kernel.Params), f.Kernel.ParamBytes)
	}
	if len(errs) > 0 {
		return fmt.Errorf("%w: %s: %w", cuda.ErrLaunch, f.Kernel.Name, errors.Join(errs...))
	}
	return nil
}

// launch does all blocks of a launch.
func (f *fn) launch(m *Machine, l *cuda.Launch, args []byte) error {
	before := m.proc.Steps
	err := f.Run(&m.proc, simt.Launch{Grid: l.Grid, Block: l.Block, Shared: int(l.Shared), Params: args[l.Off : l.Off+l.Len]})
	if err == nil {
		m.time += m.proc.Steps - before
	}
	return err
}

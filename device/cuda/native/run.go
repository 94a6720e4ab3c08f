//go:build gpu && linux && (amd64 || arm64)

package native

/*
#include "calls.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/weft-project/weft/device/cuda"
)

// The most that every GPU from sm_75 on takes.
const (
	gridX  = 1<<31 - 1
	gridYZ = 1<<16 - 1
	blockZ = 64
)

// productArgs is the size of a product's arguments, which List.AddProduct writes.
const productArgs = 7 * 8

// Run is Stream's. All launches are checked before one is submitted; then they are one call of C,
// between which nobody else's come, nor is a module unloaded.
func (s *stream) Run(l *cuda.List) error {
	if err := s.enter("launch"); err != nil {
		return err
	}
	defer s.exit()
	if len(l.Launches) == 0 {
		return nil
	}
	s.d.loaded.RLock()
	defer s.d.loaded.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if cap(s.scratch) < len(l.Launches) {
		s.scratch = make([]C.weft_launch, len(l.Launches)+len(l.Launches)/2)
	}
	scratch := s.scratch[:len(l.Launches)]
	for k := range l.Launches {
		if err := s.write(&scratch[k], l, k); err != nil {
			return err
		}
	}
	at := C.int(-1)
	r := C.weft_run(s.d.context(), s.c(), &scratch[0], C.int(len(scratch)), (*C.char)(unsafe.Pointer(unsafe.SliceData(l.Args))), &at)
	switch {
	case r.code == 0:
		return nil
	case at < 0: // the context could not be made current
		return told(r, "")
	case r.code >= C.WEFT_LT:
		return s.d.productFailure(r, l.Launches[at].Func.Name())
	}
	return told(r, l.Launches[at].Func.Name())
}

// write puts the k-th launch of a list down for C, or says what is wrong with it.
func (s *stream) write(to *C.weft_launch, l *cuda.List, k int) error {
	x := &l.Launches[k]
	if x.Off < 0 || x.Len < 0 || x.Off > len(l.Args)-x.Len {
		return refused(k, "a launch", "its arguments are not within the list's")
	}
	to.off, to.len = C.uint64_t(x.Off), C.uint32_t(x.Len)
	switch f := x.Func.(type) {
	case *kernel:
		if err := s.fits(f, x, k); err != nil {
			return err
		}
		to._func, to.shared = C.uint64_t(f.handle), C.uint32_t(x.Shared)
		to.gx, to.gy, to.gz = C.uint32_t(x.Grid[0]), C.uint32_t(x.Grid[1]), C.uint32_t(x.Grid[2])
		to.bx, to.by, to.bz = C.uint32_t(x.Block[0]), C.uint32_t(x.Block[1]), C.uint32_t(x.Block[2])
		return nil
	case *product:
		if f.d != s.d || x.Len != productArgs || x.Off%8 != 0 {
			return refused(k, f.name, "a product is launched by its own GPU, with the arguments that List.AddProduct writes")
		}
		to._func, to.gx = C.uint64_t(uintptr(unsafe.Pointer(f.handle))), 0
		return nil
	}
	return refused(k, "a launch", "%T is not a kernel of this driver", x.Func)
}

// fits checks the sizes of a launch.
func (s *stream) fits(f *kernel, x *cuda.Launch, k int) error {
	g, b := &x.Grid, &x.Block
	switch {
	case f.m.d != s.d:
		return refused(k, f.name, "it was loaded on another GPU, or by another driver")
	case f.m.gone:
		return refused(k, f.name, "its module was unloaded")
	case g[0]-1 >= gridX || g[1]-1 >= gridYZ || g[2]-1 >= gridYZ: // 0 too, as the numbers have no sign
		return refused(k, f.name, "a grid of %v blocks; it can be from 1 to %d×%d×%d", *g, gridX, gridYZ, gridYZ)
	case b[2]-1 >= blockZ || b[0]-1 >= 1024 || b[1]-1 >= 1024 || int(b[0])*int(b[1])*int(b[2]) > f.threads:
		return refused(k, f.name, "a block of %v threads; it can have from 1 to %d", *b, f.threads)
	case int(x.Shared) > f.shared:
		return refused(k, f.name, "%d bytes of dynamic shared memory; Func was asked for %d", x.Shared, f.shared)
	case f.params >= 0 && f.params != x.Len:
		return refused(k, f.name, "%d bytes of arguments; its parameters have %d", x.Len, f.params)
	}
	return nil
}

// refused says that a launch, whose kernel is named, does not fit.
func refused(k int, name, format string, args ...any) error {
	return &cuda.Error{Op: "launch", Text: fmt.Sprintf("number %d of the list, %s: ", k, name) + fmt.Sprintf(format, args...), Err: cuda.ErrLaunch}
}

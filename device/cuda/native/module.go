//go:build gpu && linux && (amd64 || arm64)

package native

// #include "calls.h"
// #include <stdlib.h>
import "C"

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/weft-project/weft/device/cuda"
)

// logBytes is how much the driver may say about bad PTX.
const logBytes = 8 << 10

// module is loaded kernels.
type module struct {
	d   *driver
	mod cu.Module

	gone bool // its driver's loaded guards it

	mu     sync.Mutex
	shared map[string]int // the most dynamic shared memory that was asked for; it is the kernel's, for all who launch it
}

// kernel is a function of a module.
type kernel struct {
	m       *module
	name    string
	handle  uintptr
	threads int // the most of a block
	shared  int
	params  int // bytes; -1: the driver does not say
}

// Name is Func's.
func (k *kernel) Name() string { return k.name }

// Load is Driver's. The error of bad PTX tells what the driver's compiler said.
func (d *driver) Load(image []byte) (cuda.Module, error) {
	const op = "cuModuleLoadDataEx"
	if err := d.enter(op); err != nil {
		return nil, err
	}
	defer d.exit()
	if len(bytes.Trim(image, " \t\r\n\x00")) == 0 { // drivers do not agree on what that is
		return nil, &cuda.Error{Op: op, Text: "there is no text", Err: cuda.ErrImage}
	}
	text := C.malloc(C.size_t(len(image)) + 1 + logBytes)
	defer C.free(text)
	mem := unsafe.Slice((*byte)(text), len(image)+1+logBytes)
	clear(mem[copy(mem, image):])
	m := &module{d: d, shared: map[string]int{}}
	log := (*C.char)(unsafe.Pointer(&mem[len(image)+1]))
	if r := C.weft_load(d.context(), (*C.CUmodule)(unsafe.Pointer(&m.mod)), text, log, logBytes-1); r.code != 0 {
		return nil, told(r, strings.TrimSpace(C.GoString(log)))
	}
	return m, nil
}

// Func is Module's.
func (m *module) Func(name string, shared int) (cuda.Func, error) {
	const op = "cuModuleGetFunction"
	if err := m.d.enter(op); err != nil {
		return nil, err
	}
	defer m.d.exit()
	m.d.loaded.RLock()
	defer m.d.loaded.RUnlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone {
		return nil, &cuda.Error{Op: op, Text: "the module was unloaded", Err: cuda.ErrImage}
	}
	k := &kernel{m: m, name: name, shared: shared}
	var fn cu.Function
	var static int
	if err := m.d.within(op, func() (err error) {
		fn, err = m.mod.Function(name)
		return err
	}); err != nil {
		return nil, fmt.Errorf("kernel %q: %w", name, err)
	}
	if err := m.d.within("cuFuncGetAttribute", func() (err error) {
		if k.threads, err = fn.Attribute(cu.FnMaxThreadsPerBlock); err == nil {
			static, err = fn.Attribute(cu.SharedSizeBytes)
		}
		return err
	}); err != nil {
		return nil, fmt.Errorf("kernel %q: %w", name, err)
	}
	handle := *(*C.CUfunction)(unsafe.Pointer(&fn))
	k.handle = uintptr(unsafe.Pointer(handle))
	if shared < 0 || shared > m.d.info.Shared-static {
		return nil, &cuda.Error{Op: op, Text: fmt.Sprintf("kernel %q: %d bytes of dynamic shared memory asked for, and %d are to be had",
			name, shared, m.d.info.Shared-static), Err: cuda.ErrLaunch}
	}
	if shared > m.shared[name] {
		if err := told(C.weft_allow_shared(m.d.context(), handle, C.int(shared)), fmt.Sprintf("kernel %q, %d bytes of dynamic shared memory", name, shared)); err != nil {
			return nil, err
		}
		m.shared[name] = shared
	}
	var params C.int
	if err := told(C.weft_params(m.d.context(), handle, &params), ""); err != nil {
		return nil, fmt.Errorf("kernel %q: %w", name, err)
	}
	k.params = int(params)
	return k, nil
}

// Unload is Module's, after the calls that launch kernels. Lists that launch the module's are
// refused from then on; graphs must not be replayed.
func (m *module) Unload() error {
	m.d.loaded.Lock()
	defer m.d.loaded.Unlock()
	if m.gone {
		return nil
	}
	m.gone = true
	return given(m.d.within("cuModuleUnload", m.mod.Unload))
}

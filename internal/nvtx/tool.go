//go:build linux && (amd64 || arm64)

package nvtx

import (
	"os"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// What the interface numbers: tables that a profiler asks for, and functions of the module for
// everything that is no library's.
const (
	tableCallbacks = 1
	tableVersion   = 3
	version        = 3

	moduleCore    = 1
	modules       = 7
	slots         = 16 // of the largest module
	rangeStart    = 5  // with a text
	rangeEnd      = 7
	variable      = "NVTX_INJECTION64_PATH"
	initialize    = "InitializeInjectionNvtx2"
	sizeOfTable   = 2 * unsafe.Sizeof(uintptr(0))
	sizeOfVersion = 3 * unsafe.Sizeof(uintptr(0))
)

// sizes are how many functions each module has, with one of number 0 that there is not.
var sizes = [modules]uint32{0, 16, 9, 15, 7, 16, 7}

// tool is a profiler, and the memory that it knows, which stays where it is.
type tool struct {
	functions [modules][slots]uintptr  // the profiler's, by module and number; 0 where it has none
	addresses [modules][slots]*uintptr // of these
	callbacks struct{ size, functionsOf uintptr }
	version   struct {
		size         uintptr
		version, _   uint32
		setInjection uintptr
	}
	pinned runtime.Pinner
}

// open opens the library that a profiler names.
func open() *tool {
	path := os.Getenv(variable)
	if path == "" {
		return nil
	}
	lib, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil
	}
	begin, err := purego.Dlsym(lib, initialize)
	if err != nil {
		return nil
	}
	t := &tool{}
	t.pinned.Pin(t)
	for m := range t.functions {
		for k := range t.functions[m] {
			if uint32(k) < sizes[m] && k > 0 {
				t.addresses[m][k] = &t.functions[m][k]
			}
		}
	}
	t.callbacks.size, t.callbacks.functionsOf = sizeOfTable, purego.NewCallback(t.functionsOf)
	t.version.size, t.version.version = sizeOfVersion, version
	t.version.setInjection = purego.NewCallback(func(uintptr) uintptr { return 0 })
	did, _, _ := purego.SyscallN(begin, purego.NewCallback(t.table))
	if int32(did) == 0 || t.functions[moduleCore][rangeStart] == 0 || t.functions[moduleCore][rangeEnd] == 0 {
		return nil
	}
	return t
}

// table is a table that the profiler asks for; 0 for one that there is not.
func (t *tool) table(id uintptr) uintptr {
	switch uint32(id) {
	case tableCallbacks:
		return uintptr(unsafe.Pointer(&t.callbacks))
	case tableVersion:
		return uintptr(unsafe.Pointer(&t.version))
	}
	return 0
}

// functionsOf tells where the profiler writes the addresses of its functions.
func (t *tool) functionsOf(module uintptr, to *uintptr, n *uint32) uintptr {
	m := uint32(module)
	if m >= modules || sizes[m] == 0 {
		return 0
	}
	if to != nil {
		*to = uintptr(unsafe.Pointer(&t.addresses[m]))
	}
	if n != nil {
		*n = sizes[m]
	}
	return 1
}

func (t *tool) begun(name string) uintptr {
	text := append([]byte(name), 0)
	id, _, _ := purego.SyscallN(t.functions[moduleCore][rangeStart], uintptr(unsafe.Pointer(&text[0])))
	runtime.KeepAlive(text)
	return id
}

func (t *tool) ended(id uintptr) { _, _, _ = purego.SyscallN(t.functions[moduleCore][rangeEnd], id) }

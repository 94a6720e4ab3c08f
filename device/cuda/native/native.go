//go:build gpu && linux && (amd64 || arm64)

package native

/*
#cgo CFLAGS: -std=gnu11
#cgo LDFLAGS: -Wl,--as-needed -L${SRCDIR}/link -ldl -lpthread
#include <stdlib.h>
#include "calls.h"
#include "link.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

// Built says whether the program can reach a driver.
const Built = true

// library opens the driver; there is one per process.
var library = sync.OnceValue(func() error {
	candidates := []string{"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1"} // containers have it there, for LD_LIBRARY_PATH
	if path := os.Getenv("LIBCUDA_PATH"); path != "" {
		candidates = []string{path}
	}
	var first error
	for _, path := range candidates {
		code, why := openLibrary(path)
		if code == 0 {
			return nil
		}
		if code > 0 {
			return failure("cuInit", code, "")
		}
		if first == nil {
			first = &cuda.Error{Op: "open", Text: why + ": install NVIDIA's driver (520 or later), or name its libcuda.so.1 in LIBCUDA_PATH", Err: cuda.ErrNoDriver}
		}
	}
	return first
})

func openLibrary(path string) (code int, why string) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var text [512]C.char
	code = int(C.weft_open(name, &text[0], C.size_t(len(text))))
	return code, C.GoString(&text[0])
}

// codeOf is the driver's number in an error of package cu, whose type is not exported.
func codeOf(err error) int {
	for err != nil {
		if v := reflect.ValueOf(err); v.Kind() == reflect.Int {
			return int(v.Int())
		}
		err = errors.Unwrap(err)
	}
	return 999
}

// called makes our error of one of package cu's.
func called(op string, err error) error {
	if err == nil {
		return nil
	}
	code := codeOf(err)
	return failure(op, code, words(code))
}

// words are the driver's for a number that we know nothing of.
func words(code int) string {
	if m := meaningOf(code); m.err != nil || m.text != "" {
		return ""
	}
	return C.GoString(C.weft_words(C.CUresult(code)))
}

// told makes our error of what became of some calls.
func told(r C.weft_result, text string) error {
	if r.code == 0 {
		return nil
	}
	op, _, _ := strings.Cut(C.GoString(r.op), "_v") // headers have macros that name versions
	if w := words(int(r.code)); w != "" && text != "" {
		text += "; " + w
	} else {
		text += w
	}
	return failure(op, int(r.code), text)
}

// Count is how many GPUs there are, of those that CUDA_VISIBLE_DEVICES shows.
func Count() (int, error) {
	if err := library(); err != nil {
		return 0, err
	}
	n, err := cu.NumDevices()
	return n, called("cuDeviceGetCount", err)
}

// List describes the GPUs, by their numbers. It takes none into use.
func List() ([]cuda.Info, error) {
	n, err := Count()
	if err != nil {
		return nil, err
	}
	all := make([]cuda.Info, n)
	for k := range all {
		dev, err := cu.GetDevice(k)
		if err != nil {
			return nil, called("cuDeviceGet", err)
		}
		if all[k], err = describe(dev); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Default is the GPU that is meant where none is named: LOCAL_RANK's, in turns where there are more
// workers than GPUs, or the first.
func Default() (int, error) {
	n, err := Count()
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, failure("cuDeviceGetCount", noDevice, "")
	}
	text := os.Getenv("LOCAL_RANK")
	if text == "" {
		return 0, nil
	}
	rank, err := strconv.Atoi(text)
	if err != nil || rank < 0 {
		return 0, fmt.Errorf("LOCAL_RANK=%q: it must be a number from 0 on", text)
	}
	return rank % n, nil
}

// version is that of CUDA which the driver supports.
func version() (int, error) {
	var v C.int
	err := told(C.weft_version(&v), "")
	return int(v), err
}

func describe(dev cu.Device) (cuda.Info, error) {
	var errs []error
	get := func(a cu.DeviceAttribute) int {
		v, err := dev.Attribute(a)
		errs = append(errs, called("cuDeviceGetAttribute", err))
		return v
	}
	version, err := version()
	errs = append(errs, err)
	name, err := dev.Name()
	id, err2 := dev.UUID()
	memory, err3 := dev.TotalMem()
	const sharedOptIn cu.DeviceAttribute = 97 // package cu does not name it
	info := cuda.Info{
		Name:      name,
		UUID:      id.String(),
		Arch:      10*get(cu.ComputeCapabilityMajor) + get(cu.ComputeCapabilityMinor),
		Driver:    version,
		Processor: get(cu.MultiprocessorCount),
		Memory:    int(memory),
		Shared:    get(sharedOptIn),
	}
	return info, errors.Join(append(errs, called("cuDeviceGetName", err), called("cuDeviceGetUuid", err2), called("cuDeviceTotalMem", err3))...)
}

// Open takes a GPU into use.
func Open(ordinal int) (cuda.Driver, error) {
	n, err := Count()
	if err != nil {
		return nil, err
	}
	if ordinal < 0 || ordinal >= n {
		return nil, &cuda.Error{Op: "open", Text: fmt.Sprintf("GPU %d of %d: they are numbered from 0, and CUDA_VISIBLE_DEVICES says which are shown", ordinal, n),
			Err: device.ErrNoDevice}
	}
	dev, err := cu.GetDevice(ordinal)
	if err != nil {
		return nil, called("cuDeviceGet", err)
	}
	d := &driver{dev: dev}
	if d.info, err = describe(dev); err != nil {
		return nil, err
	}
	if d.ctx, err = dev.RetainPrimaryCtx(); err != nil {
		return nil, called("cuDevicePrimaryCtxRetain", err)
	}
	return d, nil
}

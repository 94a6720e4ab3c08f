//go:build gpu && linux && (amd64 || arm64)

package native

/*
#include "calls.h"

#cgo noescape weft_map
*/
import "C"

import (
	"unsafe"

	"github.com/weft-project/weft/device/cuda"
)

var _ cuda.Mapper = (*driver)(nil)

// hopper is the compute capability, times ten, from which on GPUs copy tiles.
const hopper = 90

// The driver's numbers for what it does not have, or cannot do.
const (
	notFound     = 500
	notSupported = 801
)

// EncodeMap is [cuda.Mapper]'s.
func (d *driver) EncodeMap(x cuda.TensorMap) (raw [cuda.MapBytes]byte, err error) {
	const op = "cuTensorMapEncodeTiled"
	if d.info.Arch < hopper {
		return raw, cuda.ErrNoMaps
	}
	if err := d.enter(op); err != nil {
		return raw, err
	}
	defer d.exit()
	r := C.weft_map(d.context(), unsafe.Pointer(&raw), C.CUdeviceptr(x.At), (*C.uint64_t)(&x.Extents[0]), (*C.uint64_t)(&x.Strides[0]), (*C.cuuint32_t)(&x.Box[0]))
	if r.code == notFound || r.code == notSupported {
		return raw, &cuda.Error{Op: op, Code: int(r.code), Text: words(int(r.code)), Err: cuda.ErrNoMaps}
	}
	return raw, told(r, "")
}

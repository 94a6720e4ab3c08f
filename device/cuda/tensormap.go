package cuda

import "errors"

// ErrNoMaps is what a [Mapper] fails with that cannot encode maps: the GPU or its driver is too
// old.
var ErrNoMaps = errors.New("the driver encodes no maps of tensors")

// MapBytes is how many an encoded map has. As a kernel's parameter it is aligned to 64.
const MapBytes = 128

// TensorMap describes an array of bfloat16 in a GPU's memory to copies of tiles to shared memory
// (TMA). There they lie row by row, of up to 64 elements: of each 8 rows of 128 bytes, pieces of 16
// bytes are swapped by the number of the row (CU_TENSOR_MAP_SWIZZLE_128B). What a tile has beyond
// the array is zeros.
type TensorMap struct {
	At      uintptr   // a multiple of 16
	Extents [4]uint64 // the first is that of elements that follow each other
	Strides [3]uint64 // in bytes, of the others; multiples of 16
	Box     [4]uint32 // of a tile: up to 64, and 256
}

// Mapper is a [Driver] that can encode maps.
type Mapper interface {
	EncodeMap(TensorMap) ([MapBytes]byte, error)
}

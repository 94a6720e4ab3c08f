package device

import (
	"fmt"
	"unsafe"
)

// Dtype is the type of a tensor's elements. The numbers are part of the wire format: never
// renumber.
type Dtype uint8

// The element types. Float types can be differentiated; integer types are indices and labels.
const (
	Invalid Dtype = iota
	Float32
	Float64
	Int32
	Int64
	// BFloat16 is the upper half of a float32. Programs may keep in it what lies between their
	// instructions; no tensor has it, so it is not Valid.
	BFloat16
)

// Number is the set of Go types that a tensor's elements can have.
type Number interface {
	~float32 | ~float64 | ~int32 | ~int64
}

// Float is the set of Go types that can be differentiated.
type Float interface{ ~float32 | ~float64 }

// Size is the number of bytes of one element, 0 for an unknown dtype.
func (d Dtype) Size() int {
	switch d {
	case Float32, Int32:
		return 4
	case Float64, Int64:
		return 8
	case BFloat16:
		return 2
	}
	return 0
}

// IsFloat says whether gradients flow through tensors of this dtype.
func (d Dtype) IsFloat() bool { return d == Float32 || d == Float64 }

// Valid says whether tensors can have d.
func (d Dtype) Valid() bool { return Float32 <= d && d <= Int64 }

func (d Dtype) String() string {
	switch d {
	case Float32:
		return "float32"
	case Float64:
		return "float64"
	case Int32:
		return "int32"
	case Int64:
		return "int64"
	case BFloat16:
		return "bfloat16"
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// DtypeOf is the dtype of a Go type.
func DtypeOf[T Number]() Dtype {
	var z T
	switch any(z).(type) {
	case float32:
		return Float32
	case float64:
		return Float64
	case int32:
		return Int32
	case int64:
		return Int64
	}
	// A named type such as `type Celsius float32`: tell floats from integers by what halving 1
	// gives.
	one := T(1)
	isFloat, small := one/2 != 0, unsafe.Sizeof(z) == 4
	switch {
	case isFloat && small:
		return Float32
	case isFloat:
		return Float64
	case small:
		return Int32
	}
	return Int64
}

// As sees host bytes as elements of type T, without a copy. Bytes must be aligned for T, as all
// buffers are.
func As[T Number](b []byte) []T {
	var z T
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(z)))
}

// Bytes sees elements as bytes in the host's order (little-endian on every platform that Go runs
// Weft on), without a copy.
func Bytes[T Number](s []T) []byte {
	var z T
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(z)))
}

package simt

import "unsafe"

// Lanes is one register of a warp. A value lies in its low bytes; what is above them is not
// defined, but after loads and conversions, which extend to 64 bits.
type Lanes [32]uint64

// Exec does an instruction for the lanes of a mask.
type Exec func(w *Warp, m uint32)

// Integer is the whole numbers of the instruction set.
type Integer interface {
	uint8 | uint16 | uint32 | uint64 | int8 | int16 | int32 | int64
}

// Float is the floating point numbers that Go has, too.
type Float interface{ float32 | float64 }

// Scalar is what a lane may hold.
type Scalar interface{ Integer | Float }

// At is a lane as a value of a type. The host is little-endian, as the GPU is.
func At[T Scalar](r *Lanes, l int) T { return *(*T)(unsafe.Pointer(&r[l&31])) }

// Set gives a lane a value.
func Set[T Scalar](r *Lanes, l int, v T) { *(*T)(unsafe.Pointer(&r[l&31])) = v }

// What goes through the lanes is not instrumented for the race detector (go:norace), nor are its
// pointers (go:nocheckptr): it took more than half of the time of all tests that run on a machine.
// It is registers, and memory of kernels, which are the machine's, and that does one thing at a
// time; and at looks at every address itself. What crosses to other goroutines is instrumented:
// streams, copies to and from pinned memory, the tables of what is allocated.

// Poison is what registers hold that nobody wrote.
const Poison = 0xCDCDCDCDCDCDCDCD

// Full is every lane.
const Full = ^uint32(0)

// The loops that kernels spend their time in are written out.

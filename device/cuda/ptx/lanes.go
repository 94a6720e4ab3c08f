package ptx

import "unsafe"

// lanes is one register of a warp. A value lies in its low bytes; what is above them is not
// defined, but after loads and conversions, which extend to 64 bits.
type lanes [32]uint64

// exec does an instruction for the lanes of a mask.
type exec func(w *warp, m uint32)

type integer interface {
	uint8 | uint16 | uint32 | uint64 | int8 | int16 | int32 | int64
}

type float interface{ float32 | float64 }

type scalar interface{ integer | float }

// at is a lane as a value of a type. The host is little-endian, as the GPU is.
func at[T scalar](r *lanes, l int) T { return *(*T)(unsafe.Pointer(&r[l&31])) }

func set[T scalar](r *lanes, l int, v T) { *(*T)(unsafe.Pointer(&r[l&31])) = v }

// What goes through the lanes is not instrumented for the race detector (go:norace), nor are its
// pointers (go:nocheckptr): it took more than half of the time of all tests that run on a machine.
// It is registers, and memory of kernels, which are the machine's, and that does one thing at a
// time; and at looks at every address itself. What crosses to other goroutines is instrumented:
// streams, copies to and from pinned memory, the tables of what is allocated.

// poison is what registers hold that nobody wrote.
const poison = 0xCDCDCDCDCDCDCDCD

// full is every lane.
const full = ^uint32(0)

// The loops that kernels spend their time in are written out.

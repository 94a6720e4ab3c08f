package scratch

import (
	"sync"

	"github.com/weft-project/weft/device"
)

// Memory is memory for the time of one run. [Memory.Free] keeps it for the next run of whatever
// instruction, so that it stays in the cache.
type Memory struct{ Words []int64 }

// idle is the process's, as the heap is.
var idle sync.Pool

// Take gives at least n bytes, aligned to 8, with anything in them.
func Take(n int) *Memory {
	s, _ := idle.Get().(*Memory)
	if s == nil {
		s = new(Memory)
	}
	if len(s.Words)*8 < n {
		s.Words = make([]int64, (n+7)/8)
	}
	return s
}

// Free ends its use.
func (s *Memory) Free() { idle.Put(s) }

// Elems sees the memory as elements.
func Elems[T device.Number](s *Memory) []T { return device.As[T](device.Bytes(s.Words)) }

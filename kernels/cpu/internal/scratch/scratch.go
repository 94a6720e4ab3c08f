package scratch

import (
	"sync"

	"github.com/weft-project/weft/device"
)

// memory is scratch for the time of one run. It is kept for the next run of whatever instruction, so that it stays in the cache.
type Memory struct{ Words []int64 }

// idleScratch is the process's, as the heap is.
var idleScratch sync.Pool

// takeScratch gives at least n bytes, aligned to 8, with anything in them.
func Take(n int) *Memory {
	s, _ := idleScratch.Get().(*Memory)
	if s == nil {
		s = new(Memory)
	}
	if len(s.Words)*8 < n {
		s.Words = make([]int64, (n+7)/8)
	}
	return s
}

func (s *Memory) Free() { idleScratch.Put(s) }

// elems sees the memory as elements.
func Elems[T device.Number](s *Memory) []T { return device.As[T](device.Bytes(s.Words)) }

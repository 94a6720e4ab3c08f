package kernels

import (
	"sync"

	"github.com/weft-project/weft/device"
)

// memory is scratch for the time of one run. It is kept for the next run of whatever instruction, so that it stays in the cache.
type memory struct{ words []int64 }

// idleScratch is the process's, as the heap is.
var idleScratch sync.Pool

// takeScratch gives at least n bytes, aligned to 8, with anything in them.
func takeScratch(n int) *memory {
	s, _ := idleScratch.Get().(*memory)
	if s == nil {
		s = new(memory)
	}
	if len(s.words)*8 < n {
		s.words = make([]int64, (n+7)/8)
	}
	return s
}

func (s *memory) free() { idleScratch.Put(s) }

// elems sees the memory as elements.
func elems[T device.Number](s *memory) []T { return device.As[T](device.Bytes(s.words)) }

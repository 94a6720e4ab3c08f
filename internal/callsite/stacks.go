package callsite

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weft-project/weft/internal/site"
)

const (
	near = 12 // frames that tell the calls of one function apart
	deep = 24 // and those of whatever is called from there
)

// MaxStacks bounds the stacks that are remembered; beyond it they start afresh.
const MaxStacks = 4096

// Stacks remembers stacks of calls by a hash, as a [Table] does, and finds out what they are when
// it is asked. The zero value is ready; it is safe for concurrent use.
type Stacks struct {
	last [64]atomic.Pointer[Stack] // by hash

	mu sync.Mutex
	of map[uint64]*Stack
}

// Stack is one of them.
type Stack struct {
	hash   uint64
	pcs    [deep + 8]uintptr
	frames int
}

// Here is the stack of the caller.
func (s *Stacks) Here() *Stack {
	h := stackHash(deep)
	last := &s.last[h%uint64(len(s.last))]
	at := last.Load()
	if at == nil || at.hash != h {
		at = s.find(h)
		last.Store(at)
	}
	return at
}

func (s *Stacks) find(h uint64) *Stack {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.of[h]; at != nil {
		return at
	}
	if s.of == nil || len(s.of) >= MaxStacks {
		s.of = map[uint64]*Stack{}
	}
	at := &Stack{hash: h}
	at.frames = runtime.Callers(3, at.pcs[:])
	s.of[h] = at
	return at
}

// Outside is the nearest caller that is a user's, and the function that it called; the outermost
// one of a stack without a user.
func (s *Stack) Outside() (at Site, called string) {
	file, line := site.Outside(s.pcs[:s.frames])
	frames := runtime.CallersFrames(s.pcs[:s.frames])
	for {
		f, more := frames.Next()
		if f.File == file && f.Line == line || !more {
			break
		}
		if name, ok := strings.CutPrefix(f.Function, module); ok {
			called = strings.TrimSuffix(name[strings.LastIndexByte(name, '/')+1:], "[...]")
		}
	}
	return Site{file, line}, called
}

const module = "github.com/weft-project/weft/"

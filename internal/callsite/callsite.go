package callsite

import (
	"fmt"
	"maps"
	"runtime"
	"sync/atomic"

	"github.com/weft-project/weft/internal/site"
)

// Site is a place in a user's code; zero where it is not known.
type Site struct {
	File string
	Line int
}

// String is file:line, or nothing.
func (s Site) String() string {
	if s == (Site{}) {
		return ""
	}
	return fmt.Sprintf("%s:%d", s.File, s.Line)
}

// CalledAt is " called at file:line" for an error's text, or nothing.
func (s Site) CalledAt() string {
	if s == (Site{}) {
		return ""
	}
	return ", called at " + s.String()
}

// Outside is the nearest caller that is a user's.
func Outside() Site {
	var pcs [64]uintptr
	file, line := site.Outside(pcs[:runtime.Callers(2, pcs[:])])
	return Site{file, line}
}

// Table remembers from where a function is called, by a hash of the stack: to name a place costs as
// much as a small op, to recognise it a hundredth of that.
type Table struct {
	last [8]atomic.Pointer[place]          // by hash
	of   atomic.Pointer[map[uint64]*place] // never changed, only replaced
}

type place struct {
	hash uint64
	Site
}

// MaxSites bounds the places that one function knows; beyond it the table starts afresh.
const MaxSites = 256

// Here is where the user called the function.
func (s *Table) Here() *Site {
	h := stackHash(near)
	last := &s.last[h%uint64(len(s.last))]
	at := last.Load()
	if at == nil || at.hash != h {
		at = s.find(h)
		last.Store(at)
	}
	return &at.Site
}

func (s *Table) find(h uint64) *place {
	known := s.of.Load()
	if known != nil {
		if at := (*known)[h]; at != nil {
			return at
		}
	}
	at := &place{h, Outside()}
	next := map[uint64]*place{h: at}
	if known != nil && len(*known) < MaxSites {
		maps.Copy(next, *known)
	}
	s.of.Store(&next) // another one's addition may be lost: it will be made again
	return at
}

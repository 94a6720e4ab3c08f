package expr

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"gorgonia.org/gorgonia"
)

// Errors that package autodiff gives to its users under the same names.
var (
	ErrFunction = errors.New("bad function")
	ErrGradient = errors.New("bad gradient")
	ErrDtype    = errors.New("wrong dtype")
)

// ErrInBody is given instead of a deadlock.
var ErrInBody = fmt.Errorf("%w: the body of a function was computing with tensors; it may only build its graph", ErrFunction)

// building serialises everything that builds Gorgonia graphs: Gorgonia keeps lazily filled package
// variables.
var building sync.Mutex

// Lock takes the lock on building graphs, for [Unlock] to give back. It fails with [ErrInBody]
// where the caller holds it already, because it runs in the body of a function.
func Lock() error {
	if !building.TryLock() {
		if InsideBody() {
			return ErrInBody
		}
		building.Lock()
	}
	return nil
}

// Unlock gives the lock back.
func Unlock() { building.Unlock() }

// Build runs the body of a function. It is a frame of its own, which [InsideBody] looks for.
//
//go:noinline
func (g *Graph) Build(body func(*Graph, []*gorgonia.Node) []*gorgonia.Node, in []*gorgonia.Node) []*gorgonia.Node {
	return body(g, in)
}

// InsideBody says whether this goroutine is building a function's graph. It is asked only where a
// lock is taken already.
func InsideBody() bool {
	pcs := make([]uintptr, 128)
	n := runtime.Callers(3, pcs) // from the caller's caller on
	for n == len(pcs) {
		pcs = make([]uintptr, 2*len(pcs))
		n = runtime.Callers(3, pcs)
	}
	frames := runtime.CallersFrames(pcs[:n])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "expr.(*Graph).Build") {
			return true
		}
		if !more {
			return false
		}
	}
}

package autodiff

import "time"

// Time has the calls of functions with the arena's tensors timed: see [Node.Took]. Call it before
// the arena is used. For a device that computes by itself it is the time until the call returns.
func (a *Arena) Time() { a.timed = true }

// now is when a call begins whose results the arena will own, zero where it is not timed.
func (a *Arena) now() (t time.Time) {
	if r := a.root(); r != nil && r.timed {
		t = time.Now()
	}
	return t
}

func since(began time.Time) time.Duration {
	if began.IsZero() {
		return 0
	}
	return time.Since(began)
}

// Nodes lists the functions that were recorded for tensors of the arena, in the order in which they
// were called, and are still held; for inspection.
func (a *Arena) Nodes() []*Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	var ns []*Node
	for _, f := range a.owned {
		switch k := f.(type) {
		case interface{ recorded() *Node }:
			ns = append(ns, k.recorded())
		case *checkpoint:
			ns = append(ns, k.node)
		}
	}
	return ns
}

package autodiff

// Nodes lists the functions that were recorded for tensors of the arena, in the order in which they were called, and are still held; for
// inspection.
func (a *Arena) Nodes() []*Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	var ns []*Node
	for _, f := range a.owned {
		switch k := f.(type) {
		case *call:
			ns = append(ns, k.node)
		case *checkpoint:
			ns = append(ns, k.node)
		}
	}
	return ns
}

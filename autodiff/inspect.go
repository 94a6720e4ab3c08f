package autodiff

// Nodes lists the functions that were recorded for tensors of the arena, in the order in which they were called, and are still held; for
// inspection.
func (a *Arena) Nodes() []*Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	var ns []*Node
	for _, f := range a.owned {
		if k, ok := f.(*call); ok && k.node != nil {
			ns = append(ns, k.node)
		}
	}
	return ns
}

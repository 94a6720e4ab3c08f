package gpumem

// Neighbors is how many GPUs are remembered as asked about.
func (g *GPU) Neighbors() int {
	g.near.mu.Lock()
	defer g.near.mu.Unlock()
	return len(g.near.within)
}

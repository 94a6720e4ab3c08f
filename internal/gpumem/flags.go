package gpumem

import "sync"

// graphFlags is how many of the 64 flags graphs may have. Runs that are none take the others, and
// those of them that no graph has.
const graphFlags = 48

// flags gives runs flags, so that as few as can be have one that another has of which nothing is
// known.
type flags struct {
	mu   sync.Mutex
	next uint8
	kept [64]int // graphs, by flag
}

// take gives a run one, in turn.
func (f *flags) take() uint8 {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.next = (f.next + 1) % 64; f.kept[f.next] > 0; {
		f.next = (f.next + 1) % 64
	}
	return f.next
}

// keep gives a graph the flag that fewest have.
func (f *flags) keep() (flag uint8) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range uint8(graphFlags) {
		if f.kept[k] < f.kept[flag] {
			flag = k
		}
	}
	f.kept[flag]++
	return flag
}

func (f *flags) drop(flag uint8) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept[flag]--
}

// NewFlag gives a run the number of a flag. Runs that have the same, while nothing is known of
// either, are taken for one another.
func (g *GPU) NewFlag() uint8 { return g.flags.take() }

// KeepFlag gives the runs of a graph the number of a flag, until DropFlag.
func (g *GPU) KeepFlag() uint8 { return g.flags.keep() }

// DropFlag gives a graph's flag back.
func (g *GPU) DropFlag(flag uint8) { g.flags.drop(flag) }

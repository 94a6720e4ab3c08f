package gpumem

import (
	"errors"
	"fmt"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

// Ranger is a [cuda.Driver] that can tell how many bytes lie behind an address at which Alloc or
// Import gave memory. Without it nothing is imported, for nobody could check what the other process
// says of its size.
type Ranger interface {
	Range(at uintptr) (n int, err error)
}

var _ device.Exporter = (*GPU)(nil)

// Identity is Exporter's.
func (g *GPU) Identity() string {
	if _, ok := g.driver.(Ranger); !ok {
		return ""
	}
	return g.driver.Info().UUID
}

// Export is Exporter's.
func (g *GPU) Export(at uintptr) ([]byte, error) {
	h, err := g.driver.Export(at)
	return h[:], err
}

// Import is Exporter's.
func (g *GPU) Import(handle []byte) (uintptr, int, error) {
	var h cuda.Handle
	if copy(h[:], handle) != len(h) || len(handle) != len(h) {
		return 0, 0, fmt.Errorf("a handle of %d bytes; one has %d", len(handle), len(h))
	}
	r, ok := g.driver.(Ranger)
	if !ok {
		return 0, 0, errors.New("the driver does not tell how large memory is")
	}
	at, err := g.driver.Import(h)
	if err != nil {
		return 0, 0, err
	}
	n, err := r.Range(at)
	if err != nil {
		return 0, 0, errors.Join(err, g.driver.Unimport(at))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.blocks.insert(at, n)
	return at, n, nil
}

// Unimport is Exporter's.
func (g *GPU) Unimport(at uintptr) error {
	g.mu.Lock()
	g.blocks.remove(at)
	g.mu.Unlock()
	return g.driver.Unimport(at)
}

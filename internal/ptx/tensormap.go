package ptx

import (
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/ptx/simt"
)

var _ cuda.Mapper = (*Machine)(nil)

// EncodeMap is [cuda.Mapper]'s.
func (m *Machine) EncodeMap(x cuda.TensorMap) (raw [cuda.MapBytes]byte, err error) {
	err = m.do("tensor map", func() (err error) {
		if m.conf.Arch < 90 {
			return cuda.ErrNoMaps
		}
		raw, err = simt.EncodeMap(uint64(x.At), x.Extents, x.Strides, x.Box)
		return err
	})
	return raw, err
}

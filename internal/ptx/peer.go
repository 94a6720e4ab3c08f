package ptx

import (
	"errors"
	"fmt"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

var (
	_ cuda.Neighbor = (*Machine)(nil)
	_ cuda.Courier  = (*stream)(nil)
)

// Reach is [cuda.Neighbor]'s.
func (m *Machine) Reach(other cuda.Driver) (within bool, err error) {
	err = m.do("reach", func() error {
		o, ok := other.(*Machine)
		within = ok && (o == m || o.host == m.host && o.conf.Peers && m.conf.Peers)
		return nil
	})
	return within, err
}

// CopyTo is [cuda.Courier]'s.
func (s *stream) CopyTo(other cuda.Driver, dst, src uintptr, n int) error {
	within, err := s.m.Reach(other)
	if err == nil && !within {
		err = failed("copy to another GPU", fmt.Errorf("%w, and out of reach", device.ErrElsewhere))
	}
	if err != nil {
		return err
	}
	o := other.(*Machine)
	return s.move("copy to another GPU", n, func() (to, from []byte, err error) {
		if o.closed {
			return nil, nil, device.ErrClosed
		}
		to, err = o.proc.Memory.Bytes(uint64(dst), n)
		from, err2 := s.m.proc.Memory.Bytes(uint64(src), n)
		return to, from, errors.Join(err, o.lost, err2)
	})
}

package device

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Set is the devices that one worker can use. It always holds the host; the zero value holds
// nothing else. A Set is immutable.
type Set struct{ devs map[ID]Device }

// NewSet collects devices; the host is added where it is missing. Two devices with one ID are
// refused, and nil; the set with the others is given all the same.
func NewSet(devs ...Device) (*Set, error) {
	s := &Set{devs: map[ID]Device{}}
	var errs []error
	for _, d := range devs {
		if err := Given(d); err != nil {
			errs = append(errs, fmt.Errorf("device: %w", err))
		} else if _, dup := s.devs[d.ID()]; dup {
			errs = append(errs, fmt.Errorf("device: %v is given twice", d.ID()))
		} else {
			s.devs[d.ID()] = d
		}
	}
	if _, ok := s.devs[ID{}]; !ok {
		s.devs[ID{}] = Host()
	}
	return s, errors.Join(errs...)
}

// Get finds a device by ID. The error lists what there is.
func (s *Set) Get(id ID) (Device, error) {
	if d, ok := s.devs[id]; ok {
		return d, nil
	}
	if id == (ID{}) {
		return Host(), nil
	}
	return nil, fmt.Errorf("%w: %v; this worker has %v", ErrNoDevice, id, s.IDs())
}

// IDs lists the devices in order: the CPU first.
func (s *Set) IDs() []ID {
	if len(s.devs) == 0 {
		return []ID{{}}
	}
	return slices.SortedFunc(maps.Keys(s.devs), ID.compare)
}

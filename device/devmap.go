package device

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Map says on which device of the callee a caller's tensor lands: caller's device → callee's
// device. Devices that are not named stay where they are if they are the CPU, and are an error
// otherwise. The empty map is valid.
type Map map[ID]ID

// Target is where a tensor of device src lands. An unmapped accelerator is an error that names both
// ends.
func (m Map) Target(src ID) (ID, error) {
	if dst, ok := m[src]; ok {
		return dst, nil
	}
	if src.Kind == KindCPU {
		return src, nil
	}
	return ID{}, fmt.Errorf("%w: no entry for %v in %v; add one to the device map, or move the tensor to the cpu first", ErrBadMap, src, m)
}

// Reverse is the map of the response and of the backward pass. m must be one-to-one
// ([Map.Validate]).
func (m Map) Reverse() Map {
	r := make(Map, len(m))
	for src, dst := range m {
		r[dst] = src
	}
	return r
}

// Validate reports every violation in one error: sources must be among local, targets among remote,
// and no two sources may share a target.
func (m Map) Validate(local, remote []ID) error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s", ErrBadMap, fmt.Sprintf(format, args...)))
	}
	from := map[ID]ID{}
	for _, src := range slices.SortedFunc(maps.Keys(m), ID.compare) {
		dst := m[src]
		if !slices.Contains(local, src) {
			bad("source %v does not exist here; there are %v", src, local)
		}
		if !slices.Contains(remote, dst) {
			bad("target %v does not exist at the peer; it has %v", dst, remote)
		}
		if first, dup := from[dst]; dup {
			bad("%v and %v both map to %v; a map must be one-to-one", first, src, dst)
		}
		from[dst] = src
	}
	return errors.Join(errs...)
}

// String prints the entries in order: "{cpu→cpu, sim:0→sim:1}".
func (m Map) String() string {
	s := "{"
	for i, src := range slices.SortedFunc(maps.Keys(m), ID.compare) {
		if i > 0 {
			s += ", "
		}
		s += src.String() + "→" + m[src].String()
	}
	return s + "}"
}

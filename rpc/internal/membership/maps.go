package membership

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc/internal/roster"
)

// checkMaps checks the device maps among members, one error per violation; every member that sees
// the same records finds the same. Where the world is closed a map may not name a worker that is
// not there; in an open one it may come later, and is checked then.
func checkMaps(members []*roster.Member, closed bool) error {
	byName := map[string]*roster.Member{}
	for _, m := range members {
		byName[m.Name] = m
	}
	var errs []error
	for _, from := range members {
		for i, id := range from.Devices {
			if slices.Contains(from.Devices[:i], id) {
				errs = append(errs, fmt.Errorf("%w: %s has %v twice", device.ErrBadMap, from.Name, id))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(from.Maps)) {
			to := byName[name]
			switch {
			case to != nil:
				if err := from.Maps[name].Validate(from.Devices, to.Devices); err != nil {
					errs = append(errs, eachOf(err, fmt.Sprintf("%s to %s", from.Name, name))...)
				}
			case closed:
				errs = append(errs, fmt.Errorf("%w: %s maps devices to %q; %w", device.ErrBadMap, from.Name, name, ErrUnknownWorker))
			}
		}
	}
	return errors.Join(errs...)
}

// eachOf says whose each of several joined errors is.
func eachOf(err error, whose string) (errs []error) {
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	for _, e := range list {
		errs = append(errs, fmt.Errorf("%s: %w", whose, e))
	}
	return errs
}

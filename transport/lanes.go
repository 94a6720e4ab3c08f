package transport

import (
	"errors"
	"fmt"
	"slices"
)

// CheckLanes refuses what is no lane's name.
func CheckLanes(names []string) error {
	var errs []error
	for _, name := range names {
		if laneCode(name) == 0 {
			errs = append(errs, fmt.Errorf("there is no lane %q; there are %q, %q, %q and %q", name, LaneCUDA, LaneLocal, LaneBulk, LaneQUIC))
		}
	}
	return errors.Join(errs...)
}

// laneMakers gives the makers of the lanes that cfg allows, in order of preference; LaneQUIC needs none. cfg has its
// defaults.
func laneMakers(cfg Config) []laneMaker {
	var all []laneMaker
	if m := newCUDALane(cfg.Devices); m != nil && cfg.allows(LaneCUDA) {
		all = append(all, m)
	}
	if m := newLocalLane(cfg.LendCopies); m != nil && cfg.allows(LaneLocal) {
		all = append(all, m)
	}
	if cfg.allows(LaneBulk) {
		all = append(all, newBulkLane(cfg.Identity, cfg.allows(LaneLocal), cfg.Logger))
	}
	return all
}

// allows says whether a lane may be used.
func (cfg Config) allows(name string) bool {
	return cfg.Lanes == nil || slices.Contains(cfg.Lanes, name)
}

package transport

import "slices"

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
		all = append(all, newBulkLane(cfg))
	}
	return all
}

// allows says whether a lane may be used.
func (cfg Config) allows(lane string) bool {
	return cfg.Lanes == nil || slices.Contains(cfg.Lanes, lane)
}

package transport

// laneMakers gives the makers of the lanes that cfg allows, in order of preference; LaneQUIC needs none. cfg has its
// defaults.
func laneMakers(_ Config) []laneMaker {
	var all []laneMaker
	// all = append(all, newLocalLane(cfg)) goes here, and newBulkLane(cfg) after it.
	return all
}

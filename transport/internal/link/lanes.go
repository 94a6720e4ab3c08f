package link

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-project/weft/transport/internal/bulk"
	"github.com/weft-project/weft/transport/internal/cudaipc"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/shm"
	"github.com/weft-project/weft/transport/internal/wire"
)

// CheckLanes refuses what is no lane's name.
func CheckLanes(names []string) error {
	var errs []error
	for _, name := range names {
		if wire.LaneCode(name) == 0 {
			errs = append(errs, fmt.Errorf("there is no lane %q; there are %s", name, strings.Join(wire.LaneNames(), ", ")))
		}
	}
	return errors.Join(errs...)
}

// laneMakers gives the makers of the lanes that cfg allows, in any order: wire.LaneNames has the
// preference. LaneQUIC needs none. cfg has its defaults.
func laneMakers(cfg Config) []lane.Maker {
	var all []lane.Maker
	if m := cudaipc.New(cfg.Devices); m != nil && cfg.allows(wire.LaneCUDA) {
		all = append(all, m)
	}
	if m := shm.New(cfg.LendCopies); m != nil && cfg.allows(wire.LaneLocal) {
		all = append(all, m)
	}
	if cfg.allows(wire.LaneBulk) {
		all = append(all, bulk.New(cfg.Identity, cfg.allows(wire.LaneLocal), cfg.Logger))
	}
	return all
}

// allows says whether a lane may be used.
func (cfg Config) allows(name string) bool {
	return cfg.Lanes == nil || slices.Contains(cfg.Lanes, name)
}

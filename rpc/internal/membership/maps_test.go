package membership

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc/internal/roster"
)

func TestEachViolationOfTheRulesOfDeviceMapsIsAnErrorOfItsOwnThatNamesWorkerAndMap(t *testing.T) {
	sims := func(ns ...int) []device.ID {
		ids := []device.ID{{}}
		for _, n := range ns {
			ids = append(ids, device.Sim(n))
		}
		return ids
	}
	a := &roster.Member{Name: "a", Devices: sims(0, 1, 1), Maps: map[string]device.Map{ // a device twice
		"b":      {device.Sim(0): device.Sim(0), device.Sim(1): device.Sim(0)}, // two to one
		"nobody": {},
	}}
	b := &roster.Member{Name: "b", Rank: 1, Devices: sims(0), Maps: map[string]device.Map{
		"a": {device.Sim(7): device.Sim(8)}, // neither exists
		"b": {device.Sim(0): device.Sim(5)}, // its own
	}}
	err := checkMaps([]*roster.Member{a, b}, true)
	require.ErrorIs(t, err, device.ErrBadMap)
	require.ErrorIs(t, err, ErrUnknownWorker)
	errs := err.(interface{ Unwrap() []error }).Unwrap()
	says := []string{
		"a has sim:1 twice", "a to b: ", `a maps devices to "nobody"`, "b to a: ", "b to a: ", "b to b: ",
	}
	require.Len(t, errs, len(says))
	for i, e := range errs {
		require.ErrorIs(t, e, device.ErrBadMap)
		require.ErrorContains(t, e, says[i])
	}
	require.ErrorContains(t, errs[3], "sim:7")
	require.ErrorContains(t, errs[4], "sim:8")

	require.NotContains(t, checkMaps([]*roster.Member{a, b}, false).Error(), "nobody", "in an open world it may come")
	a.Maps, a.Devices, b.Maps = nil, sims(0), map[string]device.Map{"a": {device.Sim(0): device.Sim(0)}}
	require.NoError(t, checkMaps([]*roster.Member{a, b}, true))
}

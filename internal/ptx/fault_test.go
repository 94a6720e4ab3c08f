package ptx

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/ptx/simt"
)

func TestEveryMistakeOfAKernelIsFoundAndNamed(t *testing.T) {
	text := texts(t)["bugs"]
	for name, says := range map[string]string{
		"right":                    "",
		"no_barrier_after_write":   "which nobody wrote",
		"reads_behind":             "race: reads shared memory at 0, which thread [0 0 0] wrote",
		"no_barrier_after_read":    "race: reads shared memory",
		"last_writes":              "race: writes shared memory at 0, which several threads read",
		"no_barrier_in_warp":       "race: reads shared memory",
		"barrier_of_warp":          "",
		"read_by_a_warp":           "",
		"read_by_a_warp_unordered": "race: writes shared memory at 0, which several threads read",
		"two_write":                "race: writes shared memory",
		"unwritten":                "nobody wrote",
		"over":                     "reads 4 bytes out of bounds: 0x7f0000000400 is 0 bytes behind the 1024 bytes at 0x7f0000000000",
		"under":                    "writes 4 bytes out of bounds: 0x7f00000013fc is 4 bytes before the 1024 bytes at 0x7f0000001400",
		"nowhere":                  "0x40 is no address of this machine",
		"askew":                    "not aligned to the 4 bytes",
		"over_shared":              "4 bytes at 400 of the block's 400 bytes of shared memory",
		"missing_lane":             "lane 6 shuffles from lane 7, which takes no part",
		"two_shuffles":             "lanes ffff0000 never come",
		"not_in_mask":              "not in its own mask 0000ffff",
		"from_outside":             "lane 0 shuffles from lane 16, which takes no part",
		"divergent_barrier":        "divergent barrier",
		"some_warps":               "divergent barrier",
		"endless":                  "more than 20000 instructions",
		"blocks_race":              "race: writes 0x7f0000001400, which block [0 0 0]",
		"blocks_apart":             "",
		"trap":                     "trap",
	} {
		r := newRig(t, Config{Races: true, Steps: 2e4}, text)
		in, out := up(r, normal(256, 1)), up(r, make([]float32, 256))
		grid, threads, shared := 1, 256, 0
		switch {
		case strings.HasPrefix(name, "blocks"):
			grid, threads = 2, 128
		case name == "over_shared":
			shared = 400
		case name == "some_warps":
			threads = 64
		}
		err := r.launch(name, grid, threads, shared, in, out)
		if says == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, says, name)
		require.ErrorIs(t, err, device.ErrLost)
		var f *simt.Fault
		require.True(t, errors.As(err, &f), name)
		require.Equal(t, name, f.Kernel)
		require.Positive(t, f.Line)
	}
}

func TestAFaultNamesItsThreadAndLosesTheMachine(t *testing.T) {
	r := newRig(t, Config{}, texts(t)["bugs"])
	in, out := up(r, normal(200, 1)), up(r, make([]float32, 256))
	err := r.launch3("over", [3]uint32{1, 1, 1}, [3]uint32{16, 4, 4}, 0, in, out)
	require.NoError(t, err, "threadIdx.x alone counts")
	err = r.launch("over", 1, 256, 0, in, out)
	var f *simt.Fault
	require.ErrorAs(t, err, &f)
	require.Equal(t, [3]uint32{199, 0, 0}, f.Thread)
	require.Contains(t, f.Text, "ld.global")

	_, err = r.m.Alloc(10)
	require.ErrorIs(t, err, device.ErrLost)
	require.ErrorIs(t, r.s.Sync(), f, "the first fault is told again and again")
	require.ErrorIs(t, r.s.Zero(in, 4), device.ErrLost)
	_, err = r.m.Stream()
	require.ErrorIs(t, err, device.ErrLost)
	require.NoError(t, r.m.Free(in), "what is held can be given back")
	require.NoError(t, r.s.Close())
}

func TestMemoryThatWasFreedIsNotUsedAgain(t *testing.T) {
	r := newRig(t, Config{}, texts(t)["bugs"])
	in, out := up(r, normal(256, 1)), up(r, make([]float32, 256))
	require.NoError(t, r.m.Free(in))
	again := up(r, normal(256, 1))
	require.NotEqual(t, in, again)
	require.ErrorIs(t, r.m.Free(in), device.ErrReleased)
	require.ErrorIs(t, r.s.Zero(in, 4), device.ErrBounds)
	require.ErrorContains(t, r.launch("over", 1, 100, 0, in, out), "that were freed")
}

package process

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/disttest/proctest"
)

func TestMemoryThatIsShownCannotBeWrittenByAnotherProcess(t *testing.T) {
	triesToSpoil(t, proctest.Start)
}

func TestMemoryThatIsShownCannotBeWrittenNorOpenedAnewByAnotherUser(t *testing.T) {
	s := triesToSpoil(t, proctest.StartStranger)
	require.Contains(t, s.Opened, "permission denied")
}

// triesToSpoil shows memory to another process, which may read it.
func triesToSpoil(t *testing.T, start func(testing.TB, func(*exec.Cmd)) *proctest.Proc) (s spoiled) {
	const mark = 0x5c
	b, err := device.Host().Alloc(1 << 20)
	require.NoError(t, err)
	defer b.Release() //nolint:errcheck // the one of Alloc
	require.NoError(t, device.Host().Upload(b, 0, bytes.Repeat([]byte{mark}, 1<<20)))
	f, err := b.Show(false)
	require.NoError(t, err)
	defer f.Close()
	p := start(t, func(cmd *exec.Cmd) { cmd.ExtraFiles = append(cmd.ExtraFiles, f) })
	require.NoError(t, p.Ask(t.Context(), "spoil", byte(mark), &s))
	require.Equal(t, int64(1<<20), s.Size)
	require.Equal(t, 1<<20, s.Marks)
	require.NotEmpty(t, s.Wrote)
	require.NotEmpty(t, s.Cut)
	mem, err := b.Host()
	require.NoError(t, err)
	require.Equal(t, len(mem), bytes.Count(mem, []byte{mark}))
	return s
}

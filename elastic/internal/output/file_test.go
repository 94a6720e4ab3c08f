package output

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
)

func TestALogThatCannotBeWrittenAnyMoreIsToldOfOnceAndStallsNobody(t *testing.T) {
	file, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil { // as on other systems than Linux: one that is closed does as well
		file, err = os.Open(os.DevNull)
	}
	require.NoError(t, err)
	var told []string
	out := &proctest.Output{}
	l := &Lines{Sink: &Sink{screen: &screen{}, w: out}, Prefix: NewLabel(""), File: NewFile(file, func(err error) { told = append(told, err.Error()) })}
	for range 3 {
		_, err := l.Write([]byte("line\n"))
		require.NoError(t, err)
	}
	l.Close()
	require.Len(t, told, 1)
	require.Contains(t, told[0], "no more is kept of a worker's output: write /dev/")
	require.Equal(t, "line\nline\nline\n", out.String())
}

package agent

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
)

func TestLocalRankZeroReadsWhatIsTypedAndAllOthersReadNothing(t *testing.T) {
	t.Parallel()
	for _, open := range []bool{false, true} {
		spec := job(t, "read", 3)
		out := &proctest.Output{}
		spec.Stdout, spec.Stderr = out, out
		r, w, err := os.Pipe()
		require.NoError(t, err)
		defer r.Close()
		want := "[0] read \n"
		if open {
			spec.Stdin, want = r, "[0] read continue\n"
		}
		ended := make(chan error, 1)
		go func() {
			_, err := run(t, t.Context(), spec)
			ended <- err
		}()
		out.Await(t, "[1] read \n", 1)
		out.Await(t, "[2] read \n", 1)
		_, err = w.WriteString("continue")
		require.NoError(t, err)
		require.NoError(t, w.Close())
		require.NoError(t, <-ended)
		require.Contains(t, out.String(), want)
	}
}

func TestAWorkerThatIsStartedAgainReadsOn(t *testing.T) {
	t.Parallel()
	spec := job(t, "read a line", 1)
	spec.MaxRestarts = 1
	out := &proctest.Output{}
	spec.Stdout = out
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	spec.Stdin = r
	ended := make(chan error, 1)
	go func() {
		_, err := run(t, t.Context(), spec)
		ended <- err
	}()
	_, err = w.WriteString("one\n")
	require.NoError(t, err)
	out.Await(t, "[0] attempt 0 read one\n", 1)
	_, err = w.WriteString("two\n")
	require.NoError(t, err)
	require.NoError(t, <-ended)
	require.Contains(t, out.String(), "[0] attempt 1 read two\n")
	require.NoError(t, w.Close())
}

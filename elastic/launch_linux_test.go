package elastic

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// replaced replaces worker 1 of two until the test has heard enough, and returns what was said.
func replaced(t *testing.T, part string, enough func(w *crew, times int) bool) string {
	w := newCrew(t, part, 2, func(s *Spec) { s.MaxRestarts = 1 << 20 })
	end := w.start(0)
	for n := 0; ; n++ {
		w.out.await(t, "] here ", 2+n)
		if enough(w, n) {
			break
		}
		require.NoError(t, syscall.Kill(w.pids()[1], syscall.SIGKILL))
	}
	end(errTestStop)
	w.runs.Wait()
	require.ErrorIs(t, w.ends[0], errTestStop)
	return w.out.String()
}

func TestAWorkerThatNeverAsksForItsPlaceIsNamedOnceWhenAnotherIsReplaced(t *testing.T) {
	const warning = "weft: worker0 (rank 0, "
	more := 3
	said := replaced(t, "deaf", func(w *crew, _ int) bool {
		if strings.Contains(w.out.String(), warning) {
			more--
		}
		return more == 0
	})
	require.Equal(t, 1, strings.Count(said, warning), said)
	require.Contains(t, said, "has not called elastic.Join; for a program that cannot, there is --restart-policy group")
}

func TestAWorkerThatAskedForItsPlaceIsNotWarnedOf(t *testing.T) {
	began := time.Now()
	said := replaced(t, "stay", func(_ *crew, times int) bool { return times > 2 && time.Since(began) > 2*settled })
	require.NotContains(t, said, "elastic.Join", said)
}

func TestWhatIsUnreadInAPipeIsCounted(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	require.Zero(t, unread(w))
	_, err = w.WriteString("12345")
	require.NoError(t, err)
	require.Equal(t, 5, unread(w))
	_, err = r.Read(make([]byte, 5))
	require.NoError(t, err)
	require.Zero(t, unread(w))
	require.NoError(t, w.Close())
	require.Zero(t, unread(w))
}

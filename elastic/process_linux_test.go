package elastic

import (
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestAWorkerWithoutACoreOfItsOwnHasLenientTimersAndItsAgentKeepsItsOwn(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	slack := func() time.Duration {
		n, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
		require.NoError(t, err)
		return time.Duration(n)
	}
	worker := func(start func(*exec.Cmd) error) time.Duration {
		var out strings.Builder
		cmd := exec.Command("cat", "/proc/self/timerslack_ns")
		cmd.Stdout = &out
		require.NoError(t, start(cmd))
		require.NoError(t, cmd.Wait())
		n, err := strconv.Atoi(strings.TrimSpace(out.String()))
		require.NoError(t, err)
		return time.Duration(n)
	}
	before := slack()
	require.Equal(t, before, worker((*exec.Cmd).Start))
	require.Equal(t, leniency, worker(startLenient))
	require.Equal(t, before, slack())

	user := 2 * leniency // what the user asked for stays
	require.NoError(t, unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(user), 0, 0, 0))
	defer func() { require.NoError(t, unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0)) }()
	require.Equal(t, user, worker(startLenient))
	require.Equal(t, user, slack())
}

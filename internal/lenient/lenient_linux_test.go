package lenient

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestWhatIsStartedHasLenientTimersAndWhoStartsItKeepsItsOwn(t *testing.T) {
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
	require.Equal(t, By, worker(Start))
	require.Equal(t, before, slack())

	user := 2 * By // what the user asked for stays
	require.NoError(t, unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(user), 0, 0, 0))
	defer func() { require.NoError(t, unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0)) }()
	require.Equal(t, user, worker(Start))
	require.Equal(t, user, slack())
}

// TestMain shows the timers of this program, where it is asked to become lenient.
func TestMain(m *testing.M) {
	if os.Getenv("WEFT_LENIENT") == "" {
		os.Exit(m.Run())
	}
	Become()
	seen := make(chan int)
	for range 4 {
		go func() {
			runtime.LockOSThread() // which ends with the goroutine
			n, _ := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
			seen <- n
		}()
		fmt.Println(<-seen)
	}
}

func TestAProgramBecomesLenientOnceAndForAllItsThreads(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "WEFT_LENIENT=1")
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, strings.Repeat(strconv.Itoa(int(By))+"\n", 4), string(out))
}

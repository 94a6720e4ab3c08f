package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// script runs a script of the shell's in which "$0" is weft, by a command before it if there is
// one, and returns its exit code and what it said.
func script(t *testing.T, text string, before ...string) (code int, said string) {
	t.Helper()
	args := append(before, "sh", "-c", text, os.Args[0])
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "WEFT_TEST_PART=weft", "GORACE=atexit_sleep_ms=0", "DIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	require.NotNil(t, cmd.ProcessState, err)
	return cmd.ProcessState.ExitCode(), string(out)
}

// unshare is the command that gives what comes behind it namespaces of its own.
func unshare(flags ...string) []string {
	if os.Geteuid() != 0 {
		flags = append([]string{"--user", "--map-root-user"}, flags...)
	}
	return append([]string{"unshare"}, flags...)
}

// number is the number that stands alone in a line of a worker's behind a word.
func number(t *testing.T, said, word string) int {
	t.Helper()
	_, behind, found := strings.Cut(said, "] "+word+" ")
	require.True(t, found, said)
	line, _, _ := strings.Cut(behind, "\n")
	n, err := strconv.Atoi(line)
	require.NoError(t, err, said)
	return n
}

func TestTwoWorkersThatCannotStartAreAFailureWithItsReason(t *testing.T) {
	code, said := script(t, `printf 'echo hi\n' >"$DIR/x"; chmod +x "$DIR/x"; exec "$0" run --nproc-per-node 2 "$DIR/x"`)
	require.Equal(t, 126, code, said)
	require.Contains(t, said, "exec format error: it is no program of this kind of machine; a script names its interpreter in its first line")
	require.NotContains(t, said, "panic")
}

func TestWorkersForWhichThereAreNoDescriptorsAreAFailureWithItsReason(t *testing.T) {
	t.Parallel()
	code, said := script(t, `ulimit -n 60; exec "$0" run --nproc-per-node 64 sleep 600`)
	require.Equal(t, 126, code, said)
	require.Regexp(t, `weft: worker\d+ \(rank \d+\) did not start: .*too many open files: .* raise ulimit -n`, said)
}

func TestWorkersForWhoseLogsThereAreNoInodesAreAFailureWithItsReason(t *testing.T) {
	t.Parallel()
	code, said := script(t, `mount -t tmpfs -o nr_inodes=8 none "$DIR" && exec "$0" run --nproc-per-node 2 --log-dir "$DIR" sleep 600`, unshare("--mount")...)
	require.Equal(t, 126, code, said)
	require.Regexp(t, `weft: worker1 \(rank 1\) did not start: its log files: .*no space left on device: no space, or no inodes,`, said)
}

func TestWorkersEndInGoodOrderWhenNobodyReadsTheirOutputAnyMore(t *testing.T) {
	worker := `trap "echo saved >$DIR/$RANK; exit" TERM; sleep 600 & echo child $!; while :; do echo line; sleep .01; done`
	code, said := script(t, `{ "$0" run --nproc-per-node 2 sh -c '`+worker+`'; echo $? >$DIR/code; } | head -2; cat $DIR/code; cat $DIR/0 $DIR/1`)
	require.Zero(t, code)
	require.Contains(t, said, "weft: nobody reads the output any more (stdout); stopping 2 workers\n")
	require.True(t, strings.HasSuffix(said, "141\nsaved\nsaved\n"), said)
	require.ErrorIs(t, syscall.Kill(number(t, said, "child"), 0), syscall.ESRCH)
}

func TestWorkersWhoseOutputFilesKeepGoOnWhenNobodyReadsIt(t *testing.T) {
	code, said := script(t, `{ "$0" run --log-dir "$DIR" sh -c 'seq 20000'; echo $? >$DIR/code; } | head -1; cat $DIR/code; cat $DIR/*/*/*/0/stdout.log | tail -1`)
	require.Zero(t, code)
	require.Contains(t, said, "weft: nobody reads the output any more (stdout); the log files have it\n")
	require.True(t, strings.HasSuffix(said, "0\n20000\n"), said)
}

func TestTheFirstProcessOfAContainerReapsWhatItInherits(t *testing.T) {
	t.Parallel()
	worker := `for i in $(seq 20); do (sleep 0.01 &); done
for i in $(seq 250); do
	[ $(ps -e -o args= | grep -c "^sleep 0.01\|[d]efunct") = 0 ] && exit
	sleep 0.02
done
ps -e -o pid,ppid,args
exit 9`
	code, said := script(t, `exec "$0" run --nproc-per-node 2 sh -c '`+worker+`'`, unshare("--pid", "--fork", "--mount-proc")...)
	require.Zero(t, code, said)
}

func TestReapingLeavesTheWorkersToWhoeverWaitsForThem(t *testing.T) {
	t.Parallel()
	for _, want := range []int{0, 7} {
		code, said := script(t, fmt.Sprintf(`exec "$0" run --nproc-per-node 16 sh -c '(true &); (true &); (true &); exit %d'`, want))
		require.Equal(t, want, code, said)
	}
}

func TestWhatAWorkerHasStartedDiesWithTheJobInWhateverSession(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"exit 0", "exit 3", "kill -9 $$", "kill $PPID; sleep 600"} {
		_, said := script(t, `exec "$0" run sh -c 'setsid sh -c "setsid sleep 600 >/dev/null 2>&1 & echo apart \$!; touch $DIR/x; exec sleep 600 >/dev/null 2>&1" & until [ -e $DIR/x ]; do sleep .01; done; `+end+`'`)
		require.ErrorIs(t, syscall.Kill(number(t, said, "apart"), 0), syscall.ESRCH, said)
	}
}

func TestWhatWasThereBeforeTheJobOutlivesIt(t *testing.T) {
	t.Parallel()
	code, said := script(t, `sleep 600 >/dev/null 2>&1 & echo "[0] helper $!"; exec "$0" run sh -c 'setsid sleep 600 & echo apart $!'`)
	require.Zero(t, code)
	helper := number(t, said, "helper")
	require.NoError(t, syscall.Kill(helper, syscall.SIGKILL))
	require.ErrorIs(t, syscall.Kill(number(t, said, "apart"), 0), syscall.ESRCH)
}

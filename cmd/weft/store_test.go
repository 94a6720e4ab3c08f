package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/store"
)

// shell gives a function that runs "weft store" commands on a store of this process.
func shell(t *testing.T) (run func(args ...string) (code int, stdout, stderr string), url string) {
	t.Helper()
	leak.Check(t)
	s, err := store.Serve(store.ServerConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	url = "tcp://" + s.Addr()
	return func(args ...string) (int, string, string) {
		return weft(t, append([]string{"store", args[0], "--url", url}, args[1:]...)...)
	}, url
}

func TestKeysAreSetReadAddedToAndDeletedFromAShell(t *testing.T) {
	run, _ := shell(t)
	for _, step := range []struct {
		args string
		code int
		out  string
	}{
		{"set k hello", 0, ""}, {"get k", 0, "hello"}, {"add n", 0, "1\n"}, {"add n 41", 0, "42\n"}, {"add n -- -50", 0, "-8\n"},
		{"wait k n", 0, ""}, {"get n k", 0, "n\t-8\nk\thello\n"}, {"--prefix=job set k theirs", 0, ""}, {"get job/k --timeout 0s", 0, "theirs"},
		{"get k", 0, "hello"}, {"keys", 0, "job/k\nk\nn\n"}, {"keys --prefix job", 0, "k\n"},
		{"delete k", 0, ""}, {"delete n k", cli.CodeMissing, ""}, {"get n --timeout 0s", cli.CodeMissing, ""}, {"wait n --timeout 0s", cli.CodeMissing, ""},
		{"wait n --timeout 1ms", cli.CodeMissing, ""},
		{"push q first", 0, ""}, {"push q second", 0, ""}, {"pop q", 0, "first"}, {"pop q --timeout 0s", 0, "second"},
		{"pop q --timeout 0s", cli.CodeMissing, ""}, {"pop q --timeout 1ms", cli.CodeMissing, ""}, {"barrier b 1", 0, ""}, {"barrier c 2 --timeout 1ms", cli.CodeMissing, ""},
	} {
		args := strings.Fields(step.args)
		if strings.HasPrefix(args[0], "-") {
			args[0], args[1] = args[1], args[0]
		}
		code, stdout, stderr := run(args...)
		require.Equal(t, step.code, code, "%s: %s", step.args, stderr)
		require.Equal(t, step.out, stdout, step.args)
		require.Equal(t, step.code == 0, stderr == "", "%s: %s", step.args, stderr)
	}
}

// threes are the commands that may end with code 3, as the table of docs/launching.md has them.
func threes(t *testing.T) (commands []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/launching.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "\n| command | 3 means |\n| --- | --- |\n")
	require.True(t, found)
	for line := range strings.SplitSeq(table, "\n") {
		if !strings.HasPrefix(line, "|") {
			break
		}
		for _, m := range regexp.MustCompile("`weft ([a-z ]+)`").FindAllStringSubmatch(line, -1) {
			commands = append(commands, m[1])
		}
	}
	return commands
}

func TestTheCommandsThatEndWithThreeAreThoseOfTheTable(t *testing.T) {
	t.Setenv("WEFT_TOKEN", "")
	_, url := shell(t)
	var got []string
	for command, args := range map[string]string{
		"status":    "--rdzv-endpoint " + strings.TrimPrefix(url, "tcp://"),
		"store get": "none --timeout 1ms", "store wait": "none --timeout 0s", "store pop": "none --timeout 1ms",
		"store barrier": "gate 2 --timeout 1ms", "store delete": "absent", "store keys": "--prefix none",
		"store set": "new v", "store add": "n", "store push": "q v",
	} {
		if command != "status" {
			args += " --url " + url
		}
		code, _, stderr := weft(t, strings.Fields(command+" "+args)...)
		if code == cli.CodeMissing {
			got = append(got, command)
			continue
		}
		require.Zero(t, code, "%s: %s", command, stderr)
	}
	require.ElementsMatch(t, threes(t), got)
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	run, _ := shell(t)
	_, _, stderr := run("get", "a\tb", "--timeout", "0s")
	require.Equal(t, "weft: there is no key \"a\\tb\"\n", stderr)
	_, _, stderr = run("wait", "a", "b", "--timeout", "1ms")
	require.Contains(t, stderr, "timeout after 1ms, keys: /a, /b")
}

// sluggish stands before a store whose answers come late, the first of each connection.
func sluggish(t *testing.T, to string, late time.Duration) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	pass := func(dst, src net.Conn) {
		_, _ = io.Copy(dst, src)
		_, _ = dst.Close(), src.Close()
	}
	wg.Go(func() {
		for {
			front, err := l.Accept()
			if err != nil {
				return
			}
			back, err := net.Dial("tcp", strings.TrimPrefix(to, "tcp://"))
			if err != nil {
				t.Error(err)
				_ = front.Close()
				return
			}
			wg.Go(func() { pass(back, front) })
			wg.Go(func() {
				select {
				case <-time.After(late):
				case <-t.Context().Done():
				}
				pass(front, back)
			})
		}
	})
	return "tcp://" + l.Addr().String()
}

func TestWhoWaitsForAMomentHearsOfKeysAlsoFromAStoreThatTakesLongerToAnswer(t *testing.T) {
	t.Parallel()
	_, url := shell(t)
	slow := sluggish(t, url, 50*time.Millisecond)
	for _, args := range []string{"get k", "wait k", "pop q", "barrier b 2"} {
		code, _, stderr := weft(t, append(strings.Fields("store "+args), "--url", slow, "--timeout", "1ms")...)
		require.Equal(t, cli.CodeMissing, code, "%s: %s", args, stderr)
	}
}

func TestAStoreThatIsNotReachedInTheUsersTimeIsUnreachableAndNothingIsMissing(t *testing.T) {
	_, url := shell(t)
	slow := sluggish(t, url, time.Minute)
	code, _, stderr := weft(t, "store", "get", "k", "--url", slow, "--connect-timeout", "20ms")
	require.Equal(t, cli.CodeFailed, code)
	require.Contains(t, stderr, "timed out after 20ms while trying to connect")
}

func TestAStoreInEtcdIsLookedForWhereItsURLSays(t *testing.T) {
	t.Parallel()
	leak.Check(t)
	code, _, stderr := weft(t, "store", "get", "--url", "etcd://127.0.0.1:1,127.0.0.1:2/job", "--connect-timeout", "200ms", "k")
	require.Equal(t, cli.CodeFailed, code)
	require.Contains(t, stderr, "store etcd 127.0.0.1:1,127.0.0.1:2: dial")
	require.Contains(t, stderr, "is that the address of a member of the cluster")
}

// piped runs weft as a process of its own.
func piped(t *testing.T, in string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "WEFT_TEST_PART=weft", "GORACE=atexit_sleep_ms=0")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &errs
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		require.True(t, errors.As(err, &exit), "%v", err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// mostOfValue is the longest value that a store takes, in bytes.
const mostOfValue = 8 << 20

func TestValuesGoThroughPipesAsTheyAre(t *testing.T) {
	t.Parallel()
	_, url := shell(t)
	for _, value := range []string{"", "two\nlines\n", "\x00\x01\xff\x1b[2J", strings.Repeat("x", mostOfValue)} {
		code, stdout, stderr := piped(t, value, "store", "set", "k", "--url", url)
		require.Zero(t, code, stderr)
		require.Empty(t, stdout)
		code, stdout, stderr = piped(t, "", "store", "get", "k", "--url", url)
		require.Zero(t, code, stderr)
		require.Equal(t, len(value), len(stdout))
		require.True(t, value == stdout)
	}
	code, _, stderr := piped(t, strings.Repeat("x", mostOfValue+1), "store", "set", "k", "--url", url)
	require.Equal(t, cli.CodeFailed, code)
	require.Contains(t, stderr, "standard input has more than the 8388608 bytes")
}

func TestAWatchEndsWellWhenItIsInterrupted(t *testing.T) {
	t.Parallel()
	run, url := shell(t)
	cmd, out := background(t, "store", "watch", "k", "--url", url)
	for printed := false; !printed; {
		code, _, stderr := run("set", "k", "v")
		require.Zero(t, code, stderr)
		select {
		case _, printed = <-out:
			require.True(t, printed, "it ended")
		default:
		}
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	for range out {
	}
	require.NoError(t, cmd.Wait())
}

// background starts weft as a process of its own; out has its lines of both kinds, until it ends.
func background(t *testing.T, args ...string) (cmd *exec.Cmd, out <-chan string) {
	t.Helper()
	cmd = exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "WEFT_TEST_PART=weft", "GORACE=atexit_sleep_ms=0")
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = cmd.Stdout
	require.NoError(t, cmd.Start())
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(pipe); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	return cmd, lines
}

package elastic

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
	"golang.org/x/sys/unix"
)

// gate is a writer whose reader takes nothing until it is opened.
type gate struct {
	came, open chan struct{}
	bytes.Buffer
}

func newGate() *gate { return &gate{came: make(chan struct{}, 1000), open: make(chan struct{})} }

func (g *gate) Write(p []byte) (int, error) {
	g.came <- struct{}{}
	<-g.open
	return g.Buffer.Write(p)
}

func TestTheAgentsWordsNeverWaitForWhoReadsThem(t *testing.T) {
	g := newGate()
	out, err := newSinks(g, g)
	require.Same(t, out.screen, err.screen)
	written := make(chan struct{})
	go func() { out.put("[0] ", []byte("stalls"), whole); close(written) }()
	<-g.came
	var want strings.Builder
	want.WriteString("[0] stalls\n")
	for i := range 10 {
		err.say(strconv.Itoa(i))
		want.WriteString("weft: " + strconv.Itoa(i) + "\n")
	}
	close(g.open)
	<-written
	out.put("[0] ", []byte("goes on"), whole)
	err.say("end")
	err.settle()
	require.Equal(t, want.String()+"[0] goes on\nweft: end\n", g.String())
}

func TestWordsThatNobodyReadsAreBoundedAndTheOldestGo(t *testing.T) {
	g := newGate()
	out, err := newSinks(g, g)
	go out.put("", []byte("stalls"), whole)
	<-g.came
	long := strings.Repeat("x", maxWords/4)
	for i := range 10 {
		err.say(strconv.Itoa(i) + long[1:])
	}
	err.say(strings.Repeat("y", 3*maxWords))
	err.say("last")
	require.LessOrEqual(t, out.screen.size, maxWords)
	close(g.open)
	err.settle()
	require.Equal(t, "stalls\nweft: 11 lines of the agent's are missing here, as nobody read them\nweft: last\n", g.String())
}

func TestNothingIsWrittenToAScreenThatIsClosed(t *testing.T) {
	g := newGate()
	out, err := newSinks(g, g)
	go out.put("", []byte("stalls"), whole)
	<-g.came
	err.say("waits")
	out.screen.close()
	err.say("late")
	close(g.open)
	out.put("", []byte("late"), whole)
	err.settle()
	require.Equal(t, "stalls\n", g.String())
}

func TestTwoFilesDoNotStallEachOtherAndOneFileKeepsItsOrder(t *testing.T) {
	file := func(name string) *os.File {
		f, err := os.OpenFile(filepath.Join(t.TempDir(), name), os.O_CREATE|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	a, b := file("a"), file("b")
	out, err := newSinks(a, b)
	require.NotSame(t, out.screen, err.screen)
	again, openErr := os.OpenFile(a.Name(), os.O_WRONLY, 0)
	require.NoError(t, openErr)
	defer again.Close()
	out, err = newSinks(a, again)
	require.Same(t, out.screen, err.screen)
}

// shout is a job whose worker fills a pipe that nobody reads.
func shout(t *testing.T, script string) (spec Spec, unread *os.File) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	return Spec{Program: "/bin/sh", Args: []string{"-c", script}, NprocPerNode: 1, Stdout: w, Stderr: &proctest.Output{}, Probe: NewProbe()}, r
}

// full waits until a pipe takes nothing more.
func full(t *testing.T, pipe io.Writer) {
	raw, err := pipe.(*os.File).SyscallConn()
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		n := 1
		_ = raw.Control(func(fd uintptr) { n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 0) })
		return n == 0 && err == nil
	}, 20*time.Second, time.Millisecond)
}

func TestAnAgentWhoseOutputNobodyReadsAnswersAndEndsWhenAsked(t *testing.T) {
	spec, unread := shout(t, "trap '' TERM; yes yes-yes")
	abort := make(chan struct{})
	spec.Abort, spec.Grace = abort, time.Hour
	c, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error)
	go func() { _, err := Run(c, spec); ended <- err }()
	full(t, spec.Stdout)
	s, err := spec.Probe.Ask(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, s.Running)
	cancel(errTestStop)
	close(abort)
	require.ErrorIs(t, <-ended, errTestStop)
	unread.Close()
	require.Empty(t, strays(1000))
}

func TestAnAgentWaitsForASlowReaderOfWhatItsWorkersHaveSaid(t *testing.T) {
	spec, slow := shout(t, "seq 100000")
	ended := make(chan error, 1)
	go func() { _, err := Run(t.Context(), spec); ended <- err; spec.Stdout.(*os.File).Close() }()
	full(t, spec.Stdout)
	require.Eventually(t, func() bool {
		s, err := spec.Probe.Ask(t.Context())
		return err == nil && s.Running == 1
	}, 20*time.Second, time.Millisecond)
	var got bytes.Buffer
	_, err := got.ReadFrom(slow)
	require.NoError(t, err)
	require.NoError(t, <-ended)
	require.Equal(t, 100000, bytes.Count(got.Bytes(), []byte("\n")))
	require.True(t, bytes.HasSuffix(got.Bytes(), []byte("[0] 100000\n")))
}

func TestTheEndOfAWorkerIsHeardThoughAnotherProcessHoldsItsOutput(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"there", "fifo"} {
		require.NoError(t, unix.Mkfifo(filepath.Join(dir, name), 0o600))
	}
	cmd := exec.Command("/bin/sh", "-c", `setsid sh -c 'echo >there; read x <fifo; echo late >&2' & read x <there; echo last words >&2; exit 3`)
	cmd.Dir = dir
	out := &proctest.Output{}
	sink, _ := newSinks(out, out)
	show := func() *lines { return &lines{sink: sink, prefix: newLabel(""), keep: true} }
	p, err := start(cmd, false, show(), show())
	require.NoError(t, err)
	p.drain = time.Hour
	require.Equal(t, 3, p.wait().code)
	p.hear()
	require.Equal(t, []string{"last words"}, p.stderr.Tail())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fifo"), []byte("go\n"), 0))
	p.readers.Wait()
	require.Equal(t, "last words\nlate\n", out.String())
}

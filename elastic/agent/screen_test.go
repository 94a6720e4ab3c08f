package agent

import (
	"bytes"
	"context"
	"io"
	"os"
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
	t.Parallel()
	spec, unread := shout(t, "trap '' TERM; yes yes-yes")
	abort := make(chan struct{})
	spec.Abort, spec.Grace = abort, time.Hour
	c, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error)
	left := make(chan string)
	go func() {
		left <- strayed(func() {
			_, err := Run(c, spec)
			ended <- err
			unread.Close()
		})
	}()
	full(t, spec.Stdout)
	s, err := spec.Probe.Ask(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, s.Running)
	cancel(errTestStop)
	close(abort)
	require.ErrorIs(t, <-ended, errTestStop)
	require.Empty(t, <-left)
}

func TestAnAgentWaitsForASlowReaderOfWhatItsWorkersHaveSaid(t *testing.T) {
	t.Parallel()
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

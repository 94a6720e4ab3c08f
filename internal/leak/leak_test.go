package leak

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
)

// fake is a test whose end and failures another test can see.
type fake struct {
	testing.TB
	failures []string
	cleanups []func()
}

func (f *fake) Name() string      { return "fake" }
func (f *fake) Helper()           {}
func (f *fake) Cleanup(fn func()) { f.cleanups = append(f.cleanups, fn) }
func (f *fake) Errorf(format string, args ...any) {
	f.failures = append(f.failures, fmt.Sprintf(format, args...))
}

func (f *fake) end() {
	for _, fn := range f.cleanups {
		fn()
	}
}

func TestAGoroutineLeftBehindFailsTheTest(t *testing.T) {
	f := &fake{}
	check(f, 20*time.Millisecond)
	stay := make(chan struct{})
	started := make(chan struct{})
	go func() { // a grandchild counts as well
		go func() { close(started); <-stay }()
	}()
	<-started
	f.end()
	close(stay)
	require.Len(t, f.failures, 1)
	require.Contains(t, f.failures[0], "TestAGoroutineLeftBehindFailsTheTest")
}

func TestABufferLeftBehindFailsTheTest(t *testing.T) {
	f := &fake{}
	check(f, 20*time.Millisecond)
	b, err := device.Host().Alloc(100)
	require.NoError(t, err)
	f.end()
	require.NoError(t, b.Release())
	require.Len(t, f.failures, 1)
	require.Contains(t, f.failures[0], "1 host buffers of together 100 bytes")
}

func TestWhatEndsWithinTheGraceIsNoLeak(t *testing.T) {
	f := &fake{}
	check(f, 10*time.Second)
	b, err := device.Host().Alloc(100)
	require.NoError(t, err)
	ending := make(chan struct{})
	go func() {
		<-ending
		_ = b.Release()
	}()
	f.cleanups = append([]func(){func() { close(ending) }}, f.cleanups...)
	f.end()
	require.Empty(t, f.failures)
}

func TestGoroutinesOfOtherTestsAreNotCounted(t *testing.T) {
	stay := make(chan struct{})
	defer close(stay)
	go func() { <-stay }()
	f := &fake{}
	check(f, 20*time.Millisecond)
	f.end()
	require.Empty(t, f.failures)
}

package leak

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/weft-project/weft/device"
)

// grace is for how long what ends on its own may take to end.
const grace = 5 * time.Second

const label = "leak"

// Check looks, when t ends, for goroutines that t started, directly or not, and for buffers of host
// memory that were allocated since now, and fails t if some are still alive after a grace period.
// Call it first, so that t's other clean-up comes before. Tests that run at the same time
// (t.Parallel) do not see each other's goroutines, but they do see each other's buffers.
func Check(t testing.TB) {
	t.Helper()
	check(t, grace)
}

func check(t testing.TB, grace time.Duration) {
	t.Helper()
	// Goroutines inherit the labels of the goroutine that starts them.
	mark := fmt.Sprintf("%s %p", t.Name(), t)
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(label, mark)))
	before := device.Host().Stats()
	t.Cleanup(func() {
		t.Helper()
		pprof.SetGoroutineLabels(context.Background())
		end := time.NewTimer(grace)
		defer end.Stop()
		pause := time.Millisecond // twice as long each time: to look is dear under the race detector
		poll := time.NewTimer(pause)
		defer poll.Stop()
		collect := time.NewTicker(grace / 5)
		defer collect.Stop()
		for {
			running, now := goroutines(mark), device.Host().Stats()
			if len(running) == 0 && now.Live <= before.Live && now.LiveBytes <= before.LiveBytes {
				return
			}
			select {
			case <-poll.C:
				pause = min(2*pause, grace/20)
				poll.Reset(pause)
			case <-collect.C: // what nobody refers to any more ends with it: tensors that were received, and the loans they are
				runtime.GC()
			case <-end.C:
				report(t, running, before, now)
				return
			}
		}
	})
}

func report(t testing.TB, running []string, before, now device.Stats) {
	t.Helper()
	if len(running) > 0 {
		t.Errorf("leak: goroutines are still running:\n%s", strings.Join(running, "\n\n"))
	}
	if now.Live > before.Live || now.LiveBytes > before.LiveBytes {
		t.Errorf("leak: %d host buffers of together %d bytes were not released", now.Live-before.Live, now.LiveBytes-before.LiveBytes)
	}
}

// goroutines gives the stacks of the goroutines with that mark; equal ones are given once, with
// their number.
func goroutines(mark string) []string {
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		return []string{err.Error()}
	}
	want := fmt.Sprintf("%q:%q", label, mark)
	var found []string
	for stack := range strings.SplitSeq(b.String(), "\n\n") {
		if strings.Contains(stack, want) && !strings.Contains(stack, "os/signal.loop") { // that one runs for ever, once per process
			found = append(found, stack)
		}
	}
	return found
}

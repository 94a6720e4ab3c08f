package proctest

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Output collects what processes say, all of them together, and can be read while they do.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

// String is all of it so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Await waits until a text was said so often.
func (o *Output) Await(t testing.TB, text string, times int) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Count(o.String(), text) >= times }, 2*time.Minute, 5*time.Millisecond,
		"expected %d times %q in:\n%s", times, text, o)
}

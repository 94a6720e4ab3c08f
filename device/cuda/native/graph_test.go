//go:build gpu && linux && (amd64 || arm64)

package native_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device/cuda"
)

// The driver's graphs are not safe for concurrent use, as its streams are: the fake one refuses a second thread.
func TestManyGoroutinesReplayOneGraph(t *testing.T) {
	b := newBench(t)
	inc := find(t, b.d, "add")
	require.NoError(t, b.s.Zero(b.at, 256))
	var l cuda.List
	add(&l, inc, b.at, b.at, 1)
	g, err := b.s.Capture(func() error { return b.s.Run(&l) })
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				assert.NoError(t, b.s.Replay(g))
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 400, b.word(t))
	require.NoError(t, g.Close())
}

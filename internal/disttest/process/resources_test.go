package process

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
)

// resources are what this process has of the system, without what the pool of host memory keeps for
// reuse.
type resources struct {
	Descriptors int
	Foreign     int   // mappings of other processes' memory
	Stray       int64 // bytes of shared memory that the pool does not know
	Live        int64 // buffers of host memory
	Goroutines  int
	RSS         int64 // bytes in memory that are the process's own; shared memory that the pool keeps is not counted
}

func (r resources) String() string {
	return fmt.Sprintf("%d descriptors, %d foreign mappings, %d stray shared bytes, %d live buffers, %d goroutines, %d MiB",
		r.Descriptors, r.Foreign, r.Stray, r.Live, r.Goroutines, r.RSS>>20)
}

// leavesNothing says that nothing countable is more than it was; memory is compared by who knows
// how much may be kept.
func (r resources) leavesNothing(before resources) bool {
	return r.Descriptors <= before.Descriptors && r.Foreign <= before.Foreign && r.Stray <= before.Stray && r.Live <= before.Live
}

func resourcesNow() (r resources, err error) {
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return r, err
	}
	for _, fd := range fds {
		if _, err := os.Readlink(fd); err == nil { // the descriptor of the listing itself is gone
			r.Descriptors++
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return r, err
	}
	stats := device.Host().Stats()
	r.Stray, r.Live, r.Goroutines = -stats.SharedBytes, stats.Live, runtime.NumGoroutine()
	for line := range strings.Lines(string(maps)) { // "7f00-7f10 rw-s 00000000 00:01 1234 /memfd:weft (deleted)"
		f := strings.Fields(line)
		if len(f) < 6 || !strings.HasPrefix(f[5], "/memfd:") {
			continue
		}
		if !strings.HasPrefix(f[1], "rw") { // others' memory is mapped for reading alone
			r.Foreign++
			continue
		}
		from, to, _ := strings.Cut(f[0], "-")
		a, errA := strconv.ParseInt(from, 16, 64)
		b, errB := strconv.ParseInt(to, 16, 64)
		if errA != nil || errB != nil {
			return r, fmt.Errorf("what is this line of /proc/self/maps: %q", line)
		}
		r.Stray += b - a
		r.Descriptors-- // a segment of the pool's has one
	}
	status, err := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 3 && (f[0] == "RssAnon:" || f[0] == "RssFile:") {
			kb, _ := strconv.ParseInt(f[1], 10, 64)
			r.RSS += kb << 10
		}
	}
	return r, err
}

func look(t testing.TB) resources {
	t.Helper()
	r, err := resourcesNow()
	require.NoError(t, err)
	return r
}

// lateLook prints what there is when it is printed.
type lateLook struct{ t testing.TB }

func (l lateLook) String() string { return look(l.t).String() }

func TestResourcesSeeADescriptorABufferAndMemoryOfOthers(t *testing.T) {
	before := look(t)
	f, err := os.Open(os.DevNull)
	require.NoError(t, err)
	require.False(t, look(t).leavesNothing(before), "a descriptor")
	require.NoError(t, f.Close())
	buf, err := device.Host().Alloc(1 << 20) // of a segment, where the system has them: no stray
	require.NoError(t, err)
	require.False(t, look(t).leavesNothing(before), "a buffer")
	if _, ok := buf.Segment(); ok {
		theirs, err := buf.Show(false)
		require.NoError(t, err)
		require.Greater(t, look(t).Descriptors, before.Descriptors)
		require.NoError(t, theirs.Close())
	}
	require.NoError(t, buf.Release())
	require.True(t, look(t).leavesNothing(before), "before %v, after %v", before, lateLook{t})
}

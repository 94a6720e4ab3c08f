package device

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weft-project/weft/internal/soak"
)

func newShared(bytes int64, files, seals int) *memory {
	return &memory{pool: pool{max: maxPooled, shared: shared{max: bytes, most: files, seals: seals}}}
}

func allocated(t testing.TB, m *memory, n int) *Buffer {
	b, err := m.Alloc(n)
	require.NoError(t, err)
	return b
}

// A seal that no kernel knows is refused as FUTURE_WRITE is by those before 5.1.
func TestWhereTheSystemCannotSealMemoryNoneIsShared(t *testing.T) {
	m := newShared(1<<30, 100, memfileSeals|1<<30)
	for range 3 {
		b := allocated(t, m, 1<<20)
		_, ok := b.Segment()
		require.False(t, ok)
		_, err := b.Show(false)
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.NoError(t, b.Release())
	}
	_, err := m.alloc(1<<20, hasSegment)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "does not seal memory against writing by others, as Linux does from 5.1 on (invalid argument)")
	require.Zero(t, m.Stats().SharedBytes)
	require.Zero(t, m.Stats().LiveBytes)
}

func TestWhatIsBeyondTheBoundOfSegmentsIsOfTheHeap(t *testing.T) {
	for name, m := range map[string]*memory{
		"files": newShared(1<<40, 3, memfileSeals),
		"bytes": newShared(3<<20, 100, memfileSeals),
	} {
		var all []*Buffer
		for i := range 5 {
			all = append(all, allocated(t, m, 1<<20))
			_, ok := all[i].Segment()
			require.Equal(t, i < 3, ok, name)
		}
		_, err := m.alloc(1<<20, hasSegment)
		require.ErrorIs(t, err, ErrMemory, name)
		for _, b := range all {
			require.NoError(t, b.Release())
		}
		for range 4 {
			b, err := m.alloc(1<<20, hasSegment)
			require.NoError(t, err, "one that is kept")
			require.NoError(t, b.Release())
		}
		for _, b := range m.pool.empty() {
			if b.seg != nil {
				b.seg.retire()
			}
		}
	}
}

func TestMemoryThatIsKeptMakesRoomForThatOfOtherSizes(t *testing.T) {
	m := newShared(1<<40, 4, memfileSeals)
	for i := range 40 {
		n := SharedFrom << (i % 7)
		a, b := allocated(t, m, n), allocated(t, m, n)
		for _, b := range []*Buffer{a, b} {
			_, ok := b.Segment()
			require.True(t, ok, "of %d bytes", n)
			require.NoError(t, b.Release())
		}
	}
	require.LessOrEqual(t, m.pool.shared.files, 4)
}

// The oracle counts what the kernel has: every segment is mapped and open once, and nothing that
// was given back is.
func TestSegmentsAreCountedAsTheyComeAndGo(t *testing.T) {
	for seed := range uint64(soak.Cases(20)) {
		r := rand.New(rand.NewPCG(seed, 18))
		m := newShared(int64(1+r.IntN(8))<<18, 1+r.IntN(8), memfileSeals)
		m.pool.max = int64(r.IntN(4)) << 18
		here := map[*Segment]bool{} // with whether it was retired
		var live []*Buffer
		for range 200 {
			if len(live) > 0 && r.IntN(2) == 0 {
				k := r.IntN(len(live))
				require.NoError(t, live[k].Release())
				live[k] = live[len(live)-1]
				live = live[:len(live)-1]
			} else {
				b := allocated(t, m, r.IntN(512<<10))
				live = append(live, b)
				if s, ok := b.Segment(); ok {
					here[s] = true
					if r.IntN(4) == 0 {
						f, err := b.Show(true)
						require.NoError(t, err)
						require.NoError(t, f.Close())
					}
				}
			}
			files, bytes := 0, int64(0)
			for s := range here {
				if s.retired {
					delete(here, s)
					continue
				}
				var st unix.Stat_t
				require.NoError(t, unix.Fstat(s.file.fd, &st))
				require.Equal(t, int64(s.Bytes()), st.Size)
				files, bytes = files+1, bytes+st.Size
			}
			require.Equal(t, m.pool.shared.files, files, "seed %d", seed)
			require.Equal(t, m.Stats().SharedBytes, bytes, "seed %d", seed)
			require.LessOrEqual(t, files, m.pool.shared.most)
			require.LessOrEqual(t, bytes, m.pool.shared.max)
		}
		for _, b := range live {
			require.NoError(t, b.Release())
		}
		for _, b := range m.pool.empty() {
			if b.seg != nil {
				b.seg.retire()
			}
		}
	}
}

func TestWhoIsToldOfTheEndOfASegmentIsToldOnce(t *testing.T) {
	m := newShared(1<<30, 100, memfileSeals)
	b := allocated(t, m, 1<<20)
	s, _ := b.Segment()
	told := make(chan string, 10)
	s.AfterRetire(func() { told <- "before" })
	stop := s.AfterRetire(func() { told <- "not any more" })
	stop()
	f, err := b.Show(true)
	require.NoError(t, err)
	require.Empty(t, told)
	require.NoError(t, b.Release())
	require.Equal(t, "before", <-told)
	s.AfterRetire(func() { told <- "after" })()
	require.Equal(t, "after", <-told)
	require.Empty(t, told)
	mem, err := unix.Mmap(int(f.Fd()), 0, 1<<20, unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err, "who has the file still has it")
	require.NoError(t, unix.Munmap(mem))
	require.NoError(t, f.Close())
}

func TestTheBoundOfSegmentsLeavesRoomForOtherDescriptorsAndMappings(t *testing.T) {
	var files unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &files))
	require.Positive(t, maxSegments())
	require.LessOrEqual(t, uint64(maxSegments()), files.Cur/4)
	require.LessOrEqual(t, maxSegments(), 1<<20)
}

func TestMemoryCanBeShownToTwoAtOnceAndIsZeroBehindTheBuffer(t *testing.T) {
	m := newShared(1<<30, 100, memfileSeals)
	for _, n := range []int{1 << 20, 900 << 10, 1 << 20, 800 << 10, 850 << 10} {
		b := allocated(t, m, n)
		mem, err := b.Host()
		require.NoError(t, err)
		for i := range mem {
			mem[i] = 1
		}
		shown := make(chan error)
		for range 2 {
			go func() {
				f, err := b.Show(false)
				if err == nil {
					err = f.Close()
				}
				shown <- err
			}()
		}
		require.NoError(t, errors.Join(<-shown, <-shown))
		s, _ := b.Segment()
		require.Equal(t, n, bytes.Count(s.mem, []byte{1}))
		require.Equal(t, s.Bytes()-n, bytes.Count(s.mem, []byte{0}))
		require.NoError(t, b.Release())
	}
	require.Equal(t, 1, m.pool.shared.files)
}

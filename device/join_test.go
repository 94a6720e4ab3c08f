package device

import (
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

// The bytes of pieces, one behind the other, whatever they lie in.
func TestJoinedPiecesAreTheirBytesOneBehindTheOther(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	page := os.Getpagesize()
	mapped := 0
	for range soak.Cases(200) {
		var pieces []Piece
		var want []byte
		whole := r.IntN(2) == 0
		for range r.IntN(5) {
			b, err := Host().Alloc([]int{0, page, SharedFrom - 1, SharedFrom, SharedFrom + 5*page}[r.IntN(5)])
			require.NoError(t, err)
			mem, err := b.Host()
			require.NoError(t, err)
			fill(r, mem)
			p := Piece{Buf: b}
			if whole {
				p.Off = r.IntN(b.Len()/page+1) * page
				p.Len = (b.Len() - p.Off) / page * page
			} else {
				p.Off = r.IntN(b.Len() + 1)
				p.Len = r.IntN(b.Len() - p.Off + 1)
			}
			pieces, want = append(pieces, p), append(want, mem[p.Off:][:p.Len]...)
		}
		all, err := Join(pieces...)
		require.NoError(t, err)
		for _, p := range pieces {
			require.Equal(t, !all.ReadOnly(), p.Buf.Exclusive(), "who maps a piece holds it")
			require.NoError(t, p.Buf.Release())
		}
		got, err := all.Host()
		require.NoError(t, err)
		require.Equal(t, want, append([]byte(nil), got...))
		if all.ReadOnly() {
			mapped++
		}
		require.NoError(t, all.Release())
	}
	if _, ok := sharedBuffer(t); ok {
		require.Positive(t, mapped)
	}
}

func fill(r *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

// sharedBuffer gives a buffer in shared memory; ok is false where the system has none.
func sharedBuffer(t *testing.T) (b *Buffer, ok bool) {
	b, err := Host().Alloc(SharedFrom)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Release()) })
	_, ok = b.Segment()
	return b, ok
}

func TestWhatIsJoinedAgainIsMappedOnceAndShowsWhatIsThereNow(t *testing.T) {
	b, ok := sharedBuffer(t)
	if !ok {
		return // it is copied each time
	}
	mem, err := b.Host()
	require.NoError(t, err)
	half := SharedFrom / 2
	swapped := []Piece{{b, half, half}, {b, 0, half}}
	known := map[*byte]bool{}
	for round := range byte(3) {
		fill(rand.New(rand.NewPCG(3, uint64(round))), mem)
		all, err := Join(swapped...)
		require.NoError(t, err)
		got, err := all.Host()
		require.NoError(t, err)
		require.Equal(t, append(append([]byte(nil), mem[half:]...), mem[:half]...), append([]byte(nil), got...))
		require.Equal(t, round > 0, known[&got[0]])
		again, err := Join(swapped...)
		require.NoError(t, err)
		other, err := again.Host()
		require.NoError(t, err)
		require.NotSame(t, &got[0], &other[0], "one that is in use")
		known[&got[0]], known[&other[0]] = true, true
		require.NoError(t, all.Release())
		require.NoError(t, again.Release())
	}
}

// Members of a group cut alike, whatever their pages are: on those with larger ones pieces may not
// be whole pages, and are copied.
func TestPiecesAreMappedOnlyWhereTheyAreOfWholePagesOfWhateverSize(t *testing.T) {
	b, err := Host().Alloc(1 << 20)
	require.NoError(t, err)
	defer b.Release() //nolint:errcheck // ours
	mem, err := b.Host()
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(4, 2))
	fill(r, mem)
	_, shared := b.Segment()
	const cut = 16 << 10
	base, outcomes := 0, map[bool]int{}
	for ; uintptr(unsafe.Pointer(&mem[base]))%(64<<10) != 0; base += os.Getpagesize() { // as on such a system
	}
	for _, page := range []int{os.Getpagesize(), 8 << 10, 16 << 10, 64 << 10} {
		for range 30 {
			var pieces []Piece
			var want []byte
			whole := shared
			for k, n := 0, 1+r.IntN(5); k < n; k++ {
				p := Piece{b, base + r.IntN(16)*cut, (1 + r.IntN(8)) * cut}
				whole = whole && (p.Off-base)%page == 0 && (k == n-1 || p.Len%page == 0)
				pieces, want = append(pieces, p), append(want, mem[p.Off:][:p.Len]...)
			}
			all, err := join(page, pieces)
			require.NoError(t, err)
			require.Equal(t, whole, all.ReadOnly(), "pages of %d bytes: %+v", page, pieces)
			require.Equal(t, want, append([]byte(nil), all.mem()...))
			require.NoError(t, all.Release())
			outcomes[whole]++
		}
	}
	require.Positive(t, outcomes[false])
	require.Equal(t, shared, outcomes[true] >= 90)
}

// An address says nothing: another memory may come to lie there.
func TestMappingsAreKnownByTheirMemoryAndNotByItsAddress(t *testing.T) {
	b, ok := sharedBuffer(t)
	if !ok {
		return
	}
	mem, err := b.Host()
	require.NoError(t, err)
	gone := 0
	join := func(of any) *byte {
		f := Foreign(mem, of, func() { gone++ })
		all, err := Join(Piece{f, 0, len(mem)})
		require.NoError(t, err)
		require.NoError(t, f.Release())
		require.True(t, all.ReadOnly() == (of != nil))
		got, err := all.Host()
		require.NoError(t, err)
		before := gone
		require.NoError(t, all.Release())
		if of != nil {
			require.Equal(t, before+1, gone, "the pieces live as long as what was made of them")
		}
		return &got[0]
	}
	one, two := new(int), new(int)
	require.Same(t, join(one), join(one))
	require.NotSame(t, join(one), join(two))
	join(nil)
	require.Equal(t, 5, gone)
}

func TestMappingsThatNobodyUsesAreBounded(t *testing.T) {
	var j joins
	for range 3 * maxJoints {
		mem, err := mapTogether(nil, SharedFrom)
		if err != nil {
			return // nothing is mapped here
		}
		j.give(&joint{mem: mem})
		require.LessOrEqual(t, len(j.idle), maxJoints)
	}
	require.Len(t, j.idle, maxJoints)
	mem, err := mapTogether(nil, maxJointBytes+SharedFrom)
	require.NoError(t, err)
	j.give(&joint{mem: mem})
	require.Empty(t, j.idle, "it is too large to be kept")
}

func TestAPieceThatDoesNotLieInItsBufferIsRefused(t *testing.T) {
	b, err := Host().Alloc(10)
	require.NoError(t, err)
	for _, p := range []Piece{{b, -1, 1}, {b, 0, -1}, {b, 11, 0}, {b, 5, 6}, {nil, 0, 0}} {
		_, err := Join(p)
		require.ErrorIs(t, err, ErrBounds)
	}
	require.NoError(t, b.Release())
	_, err = Join(Piece{b, 0, 1})
	require.ErrorIs(t, err, ErrReleased)
	d := NewSim(SimConfig{})
	far, err := d.Alloc(4)
	require.NoError(t, err)
	_, err = Join(Piece{far, 0, 4})
	require.ErrorIs(t, err, ErrNotHost)
	require.NoError(t, far.Release())
}

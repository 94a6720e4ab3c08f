package device_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
)

// picky is a Memory that says which of the kept blocks fit: those whose notes are hinted at.
type picky struct {
	*far
	size  int
	takes int
}

func (*picky) Note(at uintptr) any      { return at }
func (*picky) Fits(note, hint any) bool { return note == hint }
func (*picky) Fresh(any)                {}
func (*picky) Known(any) error          { return nil }
func (*picky) Like(any, any)            {}
func (p *picky) Size() int              { return p.size }

func (p *picky) Take(n int) (uintptr, error) {
	p.takes++
	return p.far.Take(n)
}

const nobody = uintptr(1) // whom nothing fits

func TestMemoryThatFitsNothingIsMadeAnewNotForEver(t *testing.T) {
	d := device.Over(device.CUDA(0), &picky{far: newFar(1 << 30), size: 1 << 30}, 0)
	first, err := d.Alloc(1000)
	require.NoError(t, err)
	at := first.Addr()
	require.NoError(t, first.Release())
	seen := map[uintptr]bool{}
	for range 100 {
		b, err := d.AllocFor(1000, nobody)
		require.NoError(t, err)
		seen[b.Addr()] = true
		require.NoError(t, b.Release())
	}
	require.Len(t, seen, 17, "16, and what there was")
	last, err := d.AllocFor(1000, at)
	require.NoError(t, err)
	require.Equal(t, at, last.Addr(), "what fits is found")
	require.NoError(t, last.Release())
	require.NoError(t, d.Close())
}

// What a device holds beyond the most that was in use at once, of each class, is what was made
// though there was other memory.
func TestWhatIsMadeThoughThereIsOtherMemoryIsAnEighthOfItAtMost(t *testing.T) {
	for seed := range uint64(soak.Cases(50)) {
		r := rand.New(rand.NewPCG(seed, 4))
		m := &picky{far: newFar(1 << 40), size: 1 << (16 + r.IntN(8))}
		d := device.Over(device.CUDA(0), m, int64(r.IntN(2)*m.size/4))
		used, most := map[int]int{}, map[int]int{}
		borrowed := map[int][]device.Scratch{}
		for range 400 {
			n := 256 << r.IntN(8)
			switch r.IntN(8) {
			case 0:
				d.Trim()
			case 1, 2, 3:
				if l := borrowed[n]; len(l) > 0 {
					l[0].Return()
					borrowed[n] = l[1:]
					used[n]--
				}
			case 4:
				b, err := d.AllocFor(n, nobody)
				require.NoError(t, err)
				used[n]++
				most[n] = max(most[n], used[n])
				require.NoError(t, b.Release())
				used[n]--
			default:
				s, err := d.BorrowFor(n, nobody)
				require.NoError(t, err)
				borrowed[n] = append(borrowed[n], s)
				used[n]++
				most[n] = max(most[n], used[n])
			}
			bound := m.size / 8
			for n, k := range most {
				bound += n * k
			}
			require.LessOrEqual(t, m.held(), bound, "seed %d", seed)
		}
		for _, l := range borrowed {
			for _, s := range l {
				s.Return()
			}
		}
		require.NoError(t, d.Close())
		require.Zero(t, m.held())
	}
}

func TestOfBlocksThatWereGivenBackOthersMayBeMade(t *testing.T) {
	m := &picky{far: newFar(1 << 30), size: 1 << 20}
	d := device.Over(device.CUDA(0), m, 0)
	for range 5 {
		for range 100 {
			b, err := d.AllocFor(16<<10, nobody)
			require.NoError(t, err)
			require.NoError(t, b.Release())
		}
		require.Equal(t, (1+8)*16<<10, m.held(), "the first, and an eighth")
		require.Equal(t, int64(m.held()), d.Trim())
	}
	require.NoError(t, d.Close())
}

func TestOfBlocksThatThePoolHasNoRoomForOthersMayBeMade(t *testing.T) {
	m := &picky{far: newFar(1 << 30), size: 1 << 20}
	d := device.Over(device.CUDA(0), m, 16<<10)
	for range 101 {
		b, err := d.AllocFor(16<<10, nobody)
		require.NoError(t, err)
		require.NoError(t, b.Release())
	}
	require.Equal(t, 101, m.takes)
	require.NoError(t, d.Close())
}

func TestWhereTheMemoryIsFullOtherMemoryWillDoAndIsNotAskedForAgain(t *testing.T) {
	m := &picky{far: newFar(2048), size: 1 << 20}
	d := device.Over(device.CUDA(0), m, 0)
	at := map[uintptr]bool{}
	for range 20 {
		b, err := d.AllocFor(1000, nobody)
		require.NoError(t, err)
		at[b.Addr()] = true
		require.NoError(t, b.Release())
	}
	require.Len(t, at, 2)
	require.Equal(t, 3, m.takes, "a driver that has none takes its time to say so")
	require.Positive(t, d.Trim())
	for range 20 {
		b, err := d.AllocFor(500, nobody)
		require.NoError(t, err)
		require.NoError(t, b.Release())
	}
	require.Equal(t, 3+5, m.takes, "after some was given back it is")
	require.NoError(t, d.Close())
}

func TestAllocationsAreCountedWhereTheySucceed(t *testing.T) {
	d := device.Over(device.CUDA(0), &picky{far: newFar(2048), size: 1 << 20}, 0)
	count := func() []int64 { return []int64{d.Stats().Allocs, d.Stats().Reused} }
	one, err := d.Alloc(1000)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 0}, count())
	two, err := d.AllocFor(1000, nobody)
	require.NoError(t, err)
	require.Equal(t, []int64{2, 0}, count())
	for _, n := range []int{1000, -1, 1 << 60} {
		_, err = d.Alloc(n)
		require.Error(t, err)
	}
	require.Equal(t, []int64{2, 0}, count(), "what failed is not counted")
	require.NoError(t, two.Release())
	s, err := d.Borrow(1000)
	require.NoError(t, err)
	s.Return()
	require.Equal(t, []int64{2, 0}, count(), "nor what was borrowed")
	two, err = d.AllocFor(1000, nobody)
	require.NoError(t, err)
	require.Equal(t, []int64{3, 1}, count(), "and once where a second look was needed")
	require.NoError(t, one.Release())
	require.NoError(t, two.Release())
	require.NoError(t, d.Close())
	_, err = d.Alloc(1000)
	require.ErrorIs(t, err, device.ErrClosed)
	require.Equal(t, []int64{3, 1}, count())
}

package gpumem

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

// marked is a belt as a row of marks, one for each step.
type marked struct {
	steps []int // whose it is; 0: nobody's
	out   []int
	at    int // where the last ended
}

// place finds room by looking at each step: where the last ended, else at the beginning, and never
// beyond what is out.
func (m *marked) place(n int) (from int, ok bool) {
	free := func(from int) bool {
		if from+n > len(m.steps) {
			return false
		}
		for _, who := range m.steps[from : from+n] {
			if who != 0 {
				return false
			}
		}
		return true
	}
	if len(m.out) == 0 {
		return 0, free(0)
	}
	if len(m.out) == mostParts {
		return 0, false
	}
	if free(m.at) {
		return m.at, true
	}
	return 0, free(0)
}

func TestABeltGivesWhatALookAtEachByteGives(t *testing.T) {
	for seed := range uint64(soak.Cases(100)) {
		r := rand.New(rand.NewPCG(seed, 3))
		steps := 1 + r.IntN(60)
		b, m := belt{size: steps * beltStep}, marked{steps: make([]int, steps)}
		who, sum := 0, 0
		for range 500 {
			if len(m.out) > 0 && r.IntN(5) < 2 {
				require.EqualValues(t, m.out[0], b.oldest().n, "seed %d: the oldest comes back first", seed)
				for k, w := range m.steps {
					if w == m.out[0] {
						m.steps[k] = 0
					}
				}
				m.out = m.out[1:]
				b.drop()
				continue
			}
			bytes := 1 + r.IntN(steps*beltStep/(1+r.IntN(20))+1)
			n := (bytes + beltStep - 1) / beltStep
			from, ok := b.place(bytes)
			wantFrom, want := m.place(n)
			require.Equal(t, want, ok, "seed %d", seed)
			if !ok {
				continue
			}
			require.Equal(t, wantFrom*beltStep, from, "seed %d", seed)
			who++
			p := b.push(from, bytes)
			require.Equal(t, []int{from, from + bytes}, []int{p.from, p.to})
			p.n = uint64(who)
			for k := range n {
				require.Zero(t, m.steps[wantFrom+k], "seed %d: of two at once", seed)
				m.steps[wantFrom+k] = who
			}
			m.out, m.at = append(m.out, who), wantFrom+n
			sum++
		}
		require.Positive(t, sum)
		require.Equal(t, len(m.out), b.count)
	}
}

func TestABeltHasABoundOnItsParts(t *testing.T) {
	b := belt{size: 2 * mostParts * beltStep}
	for range mostParts {
		from, ok := b.place(1)
		require.True(t, ok)
		b.push(from, 1)
	}
	_, ok := b.place(1)
	require.False(t, ok)
	b.drop()
	_, ok = b.place(1)
	require.True(t, ok)
	require.Len(t, b.parts, mostParts)
}

func TestWhatIsOnABeltStaysWithItsEvent(t *testing.T) {
	b := belt{size: 100 * beltStep}
	for n := range uint64(5) { // so that it does not begin at the first place when it grows
		from, _ := b.place(1)
		b.push(from, 1).n = n
		b.drop()
	}
	for n := range uint64(40) {
		from, ok := b.place(1)
		require.True(t, ok)
		p := b.push(from, 1)
		p.n, p.done = n, named(n)
	}
	for n := range uint64(40) {
		require.Equal(t, n, b.oldest().n)
		require.Equal(t, named(n), b.oldest().done)
		b.drop()
	}
}

// named is an event that is told from others.
type named uint64

func (named) Sync() error  { return nil }
func (named) Close() error { return nil }

func TestTheLanesOfAllStreamsAreWithinTheirBound(t *testing.T) {
	for streams := 1; streams <= mostStreams; streams++ {
		size := laneSize(streams + 1)
		l := lane{belt: belt{size: size}}
		require.LessOrEqual(t, size*(streams+1), pinnedBytes)
		require.Zero(t, size%beltStep)
		require.GreaterOrEqual(t, l.most(), 1<<20, "a part is worth its way")
		l.belt.push(0, 1)
		_, ok := l.belt.place(l.most())
		require.True(t, ok, "beside what is small there is room")
	}
}

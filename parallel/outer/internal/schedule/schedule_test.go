package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

// draw gives a configuration on both sides of all bounds.
func draw(r *rand.Rand) Config {
	cfg := Config{Every: 1 + r.IntN(12)}
	cfg.Fragments = 1 + r.IntN(min(cfg.Every, 5))
	cfg.Delay = r.IntN(cfg.Every / cfg.Fragments)
	return cfg
}

// perform does what a machine says at once, and notes it.
func perform(m *Machine, do []Action) (said []string) {
	for _, a := range do {
		switch a {
		case Apply:
			said = append(said, fmt.Sprint("apply ", m.Round()))
			m.Ended(true)
		case Begin:
			round, fragment, weight := m.Began()
			said = append(said, fmt.Sprint("begin ", round, " of ", fragment, " with ", weight))
		case Call:
			said = append(said, "call")
		}
	}
	return said
}

func TestAWorkerExchangesAsTheDefinitionSays(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range soak.Cases(500) {
		cfg := draw(r)
		m := New(cfg)
		sent := make([]int, cfg.Fragments) // the step of a fragment's exchange before
		round, begun := 0, map[int]int{}   // exchanges by the step in which they began
		for step := 1; step <= 5*cfg.Every; step++ {
			var want []string
			if k, ok := begun[step-cfg.Delay]; ok && cfg.Delay > 0 {
				want = append(want, fmt.Sprint("apply ", k))
			}
			if turn, k := round/cfg.Fragments, round%cfg.Fragments; step == turn*cfg.Every+(k+1)*cfg.Every/cfg.Fragments {
				want = append(want, fmt.Sprint("begin ", round, " of ", k, " with ", step-sent[k]))
				begun[step], sent[k] = round, step
				if cfg.Delay == 0 {
					want = append(want, fmt.Sprint("apply ", round))
				}
				round++
			}
			require.Equal(t, want, perform(m, m.Step(1)), "%+v, step %d", cfg, step)
		}
	}
}

// flock is workers whose steps, calls and results come in any order.
type flock struct {
	t       *testing.T
	r       *rand.Rand
	cfg     Config
	ms      []*Machine
	do      [][]Action  // what each still has to do
	calls   [][2]uint64 // under way: to whom, of which exchange
	began   []uint64    // by worker: how many exchanges it has begun
	gave    []float64   // by worker: weight that was applied
	lent    []float64
	made    []float64
	parties [][]int // by exchange: who has begun it
}

func newFlock(t *testing.T, r *rand.Rand, cfg Config, n int) *flock {
	f := &flock{
		t: t, r: r, cfg: cfg, do: make([][]Action, n), began: make([]uint64, n),
		gave: make([]float64, n), lent: make([]float64, n), made: make([]float64, n),
	}
	for range n {
		f.ms = append(f.ms, New(cfg))
	}
	return f
}

// advance has a worker do the next thing; false where it must wait for others.
func (f *flock) advance(i int) bool {
	m := f.ms[i]
	if len(f.do[i]) == 0 {
		w := float64(f.r.IntN(3))
		f.made[i] += w
		f.do[i] = m.Step(w)
		return true
	}
	switch f.do[i][0] {
	case Apply:
		require.LessOrEqual(f.t, m.age, f.cfg.Delay)
		if len(f.parties[m.Round()]) < len(f.ms) {
			return false
		}
		f.gave[i] += f.lent[i]
		m.Ended(true)
	case Begin:
		require.False(f.t, m.Flying(), "one exchange at a time")
		round, fragment, weight := m.Began()
		require.Equal(f.t, f.began[i], round, "in order, none left out")
		require.Equal(f.t, int(round)%f.cfg.Fragments, fragment)
		f.began[i]++
		if f.lent[i] = weight; int(round) == len(f.parties) {
			f.parties = append(f.parties, nil)
		}
		f.parties[round] = append(f.parties[round], i)
	case Call:
		for j := range f.ms {
			if j != i {
				f.calls = append(f.calls, [2]uint64{uint64(j), m.Round()})
			}
		}
	}
	f.do[i] = f.do[i][1:]
	return true
}

func TestWorkersOfAnySpeedMakeTheSameExchanges(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range soak.Cases(300) {
		cfg := draw(r)
		cfg.FirstCalls = r.IntN(4) > 0
		n := 1 + r.IntN(5)
		f := newFlock(t, r, cfg, n)
		slow := 1 + r.IntN(20)
		stuck := 0
		for range 4000 {
			if len(f.calls) > 0 && r.IntN(2) == 0 { // a call comes, maybe after later ones, maybe once more
				k := r.IntN(len(f.calls))
				f.ms[f.calls[k][0]].Called(f.calls[k][1])
				if r.IntN(3) > 0 {
					f.calls = slices.Delete(f.calls, k, k+1)
				}
			}
			i := r.IntN(n)
			if i == 0 && r.IntN(slow) > 0 {
				continue // it is slow
			}
			if f.advance(i) {
				stuck = 0
			} else if stuck++; stuck > 2000 {
				require.Fail(t, "nobody goes on", "%+v: %v", cfg, f.do)
			}
		}
		require.Greater(t, len(f.parties), 3, "%+v", cfg)
		for i, m := range f.ms {
			require.LessOrEqual(t, len(f.parties)-int(f.began[i]), 1, "nobody is an exchange behind")
			if cfg.Fragments == 1 {
				require.InDelta(t, f.made[i], f.gave[i]+m.work[0]+m.lent, 1e-9, "each step counts once")
			}
		}
	}
}

func TestASlowWorkerJoinsWhenItIsCalledAndAnEqualOneWaits(t *testing.T) {
	m := New(Config{Every: 10, Fragments: 1, Delay: 3, FirstCalls: true})
	require.Empty(t, m.Step(1))
	m.Called(0)
	require.Equal(t, []string{"begin 0 of 0 with 2"}, perform(m, m.Step(1)))
	m.Called(0)
	require.Empty(t, m.Step(1), "it has joined that already")
	m.Called(1)
	require.Equal(t, []string{"apply 0", "begin 1 of 0 with 2"}, perform(m, m.Step(1)), "the others have applied it before they called again")
	equal := New(Config{Every: 10, Fragments: 1, Delay: 3})
	equal.Called(0)
	require.Empty(t, equal.Step(1))
}

func TestAnExchangeThatFailedIsDueAtTheNextStepWithTheSameWork(t *testing.T) {
	for _, delay := range []int{0, 2} {
		m := New(Config{Every: 8, Fragments: 2, Delay: delay})
		for range 3 {
			require.Empty(t, m.Step(1))
		}
		require.Equal(t, Begin, m.Step(1)[0])
		_, _, weight := m.Began()
		require.EqualValues(t, 4, weight)
		for k := range delay {
			require.Equal(t, k == delay-1, len(m.Step(1)) > 0)
		}
		m.Ended(false)
		require.EqualValues(t, 0, m.Round())
		require.Equal(t, Begin, m.Step(1)[0])
		round, fragment, weight := m.Began()
		require.EqualValues(t, 0, round)
		require.Equal(t, 0, fragment)
		require.EqualValues(t, 4+delay+1, weight)
		m.Ended(true)
		for range 3 {
			require.Empty(t, m.Step(1))
		}
		require.Equal(t, Begin, m.Step(1)[0], "the next one is an interval later")
	}
}

func TestAGroupGoesOnWhereItsFirstIs(t *testing.T) {
	behind, first, newcomer := New(Config{Every: 6, Fragments: 2}), New(Config{Every: 6, Fragments: 2}), New(Config{Every: 6, Fragments: 2})
	for _, m := range []*Machine{behind, first} {
		for range 3 {
			m.Step(1)
		}
		m.Began()
	}
	behind.Ended(false)
	first.Ended(true)
	first.Step(1)
	p := Common([]Position{behind.Position(), first.Position(), newcomer.Position()})
	require.Equal(t, Position{Round: 1, Steps: 4, Since: 1}, p)
	require.Equal(t, []int{0, -1, -1}, []int{behind.Spent(p), first.Spent(p), newcomer.Spent(p)})
	for _, m := range []*Machine{behind, first, newcomer} {
		m.Go(p)
		require.Equal(t, Position{Round: 1, Steps: 4, Since: 1}, m.Position())
	}
	require.Equal(t, []float64{0, 3}, behind.work, "what it gave to the first exchange is spent")
	require.Equal(t, []float64{1, 4}, first.work)

	first.Began()
	first.Ended(false)
	p = Common([]Position{first.Position(), newcomer.Position()})
	require.Equal(t, 3, p.Since)
	for _, m := range []*Machine{first, newcomer} {
		m.Go(p)
		require.Equal(t, Begin, m.Step(1)[0], "what has failed comes at once")
	}
	first.Forget()
	_, _, weight := first.Began()
	require.Zero(t, weight)
}

func TestAllMakeTheExchangesOfTheEndOnceWhateverHasHappened(t *testing.T) {
	cfg := Config{Every: 6, Fragments: 3}
	at := func(round, end uint64) Position { return Position{Round: round, End: end} }
	for _, c := range []struct {
		say string
		all []Position
		end uint64
	}{
		{"nobody finishes", []Position{at(4, 0), at(4, 0)}, 0},
		{"one has begun to", []Position{at(4, 7), at(4, 0)}, 7},
		{"one has made two of them", []Position{at(6, 7), at(5, 7), at(0, 0)}, 7},
		{"one has the last one", []Position{at(7, 7), at(6, 7)}, 7},
		{"all have ended", []Position{at(7, 7), at(7, 7)}, 7},
		{"one has gone on since", []Position{at(7, 7), at(7, 0), at(6, 7)}, 0},
		{"one was away since", []Position{at(9, 0), at(6, 7)}, 0},
		{"nobody has begun yet", nil, 0},
	} {
		p := Common(c.all)
		require.Equal(t, c.end, p.End, c.say)
		m := New(cfg)
		m.Go(p)
		n := uint64(0)
		for m.Finish() {
			m.Began()
			m.Ended(true)
			n++
		}
		if c.end > 0 {
			require.Equal(t, c.end-p.Round, n, c.say)
			require.False(t, m.Finish())
			m.Step(1)
		} else {
			require.EqualValues(t, cfg.Fragments, n, c.say)
			m.Resume()
		}
		require.True(t, m.Finish(), "there is more to exchange")
	}
}

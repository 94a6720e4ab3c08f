package ledger

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

func TestSpansAreDividedWholeAndEvenly(t *testing.T) {
	for seed := range uint64(soak.Cases(500)) {
		r := rand.New(rand.NewPCG(seed, 3))
		n, k := r.IntN(30), 1+r.IntN(6)
		taken := make([]bool, n)
		var spans []Span
		for at := 0; at < n; {
			hi := min(n, at+1+r.IntN(5))
			if r.IntN(2) == 0 {
				spans = append(spans, Span{Lo: at, Hi: hi})
				for i := at; i < hi; i++ {
					taken[i] = true
				}
			}
			at = hi
		}
		r.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
		rest, ok := Rest(n, spans)
		require.True(t, ok)
		parts := divide(rest, k)
		require.Len(t, parts, k)
		for _, part := range parts {
			require.InDelta(t, float64(Len(rest))/float64(k), Len(part), 1)
			for _, s := range part {
				for i := s.Lo; i < s.Hi; i++ {
					if taken[i] { // require takes long, row by row
						require.Fail(t, "twice", "seed %d: row %d", seed, i)
					}
					taken[i] = true
				}
			}
		}
		require.False(t, slices.Contains(taken, false), "seed %d", seed)
	}
	for _, wrong := range [][]Span{{{Lo: 0, Hi: 2}, {Lo: 1, Hi: 3}}, {{Lo: 2, Hi: 6}}, {{Lo: -1, Hi: 2}}, {{Lo: 3, Hi: 2}}} {
		_, ok := Rest(5, wrong)
		require.False(t, ok, "%v", wrong)
	}
}

// at is a member that is ready for a step of 4 rows.
func at(step uint64, change func(s *Status)) Status {
	s := Status{Role: Ready, Era: "e", Step: step, Batch: 4}
	if change != nil {
		change(&s)
	}
	return s
}

func TestWhereNobodyHasTheStateThereIsNoPlan(t *testing.T) {
	_, err := Decide([]Status{{Role: Fresh}, {Role: Catching, Era: "e", Step: 3}}, 1)
	require.ErrorIs(t, err, ErrNoState)
}

func TestMembersThatDifferMakeNoPlan(t *testing.T) {
	for _, other := range []func(s *Status){
		func(s *Status) { s.Digest = "b" },
		func(s *Status) { s.Batch = 5 },
		func(s *Status) { s.Covered = []Span{{Lo: 0, Hi: 1}} },
	} {
		all := []Status{at(2, func(s *Status) { s.Digest, s.Covered = "a", []Span{{Lo: 0, Hi: 2}} }), at(2, func(s *Status) {
			s.Digest = "a"
			other(s)
		})}
		_, err := Decide(all, 1)
		require.ErrorIs(t, err, ErrDiffer)
	}
}

func TestWhatWasMadeInAnEarlierTryDoesNotCount(t *testing.T) {
	all := []Status{
		at(2, func(s *Status) { s.Try, s.Have, s.Covered = 0, []int{0}, []Span{{Lo: 0, Hi: 2}} }),
		at(2, func(s *Status) { s.Try, s.Covered = 1, []Span{{Lo: 3, Hi: 4}} }),
	}
	p, err := Decide(all, 2)
	require.NoError(t, err)
	require.EqualValues(t, 1, p.Try)
	require.Equal(t, []bool{true, false}, p.Void)
	require.Equal(t, []int{0, 1}, p.Reduce)
	require.Equal(t, 3, Len(slices.Concat(p.Compute...)))

	all[1] = at(3, func(s *Status) { s.Last, s.LastTry = true, 1 }) // and who lacks the step has nothing of it either
	p, err = Decide(all, 2)
	require.NoError(t, err)
	require.Equal(t, []Transfer{{0, 1}, {1, 1}}, p.Before)
	all[0].Try = 1
	p, err = Decide(all, 2)
	require.NoError(t, err)
	require.Equal(t, []Transfer{{1, 1}}, p.Before)
}

func TestWhoIsTooFarBehindOrOfAnotherEraGetsTheState(t *testing.T) {
	for name, behind := range map[string]Status{
		"two steps":                       at(1, nil),
		"a step whose sums are gone":      at(2, nil),
		"another era":                     at(3, func(s *Status) { s.Era = "f" }),
		"no era":                          at(3, func(s *Status) { s.Era = "" }),
		"fresh":                           {},
		"catching what nobody keeps":      {Role: Catching, Era: "e", Step: 3, Base: 1},
		"it claims what it does not have": {Role: Catching, Era: "e", Step: 3, Base: 1, Claims: true},
	} {
		p, err := Decide([]Status{at(3, nil), behind}, 1)
		require.NoError(t, err, name)
		require.Equal(t, []bool{false, true}, p.Base, name)
		require.Equal(t, []Role{Ready, Catching}, p.Roles, name)
		require.Equal(t, 4, Len(p.Compute[0]), name)
	}
	for name, fine := range map[string]Status{
		"a step whose sums are there": at(2, nil),
		"the same state":              at(3, func(s *Status) { s.Era, s.Digest = "", "d" }),
		"catching what is kept":       {Role: Catching, Era: "e", Step: 3, Base: 1},
		"catching, and it is here":    {Role: Catching, Era: "e", Step: 3, Base: 2, Loaded: true},
		"caught up":                   {Role: Catching, Era: "e", Step: 3, Base: 2, Loaded: true, Claims: true, Digest: "d"},
	} {
		p, err := Decide([]Status{fine, at(3, func(s *Status) { s.Last, s.Digest, s.Keeps = true, "d", []uint64{1} })}, 1)
		require.NoError(t, err, name)
		require.Equal(t, []bool{false, false}, p.Base, name)
		ready := fine.Role == Ready || fine.Claims
		require.Equal(t, ready, p.Roles[0] == Ready, name)
	}
}

package places

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

// plainPlaces says from a list of all that ever entered what places should have done.
type plainPlaces struct {
	terms Terms
	all   []*plainPlace
}

type plainPlace struct {
	who           string
	x             *Place
	evicted, over bool
}

func (o *plainPlaces) count(is func(e *plainPlace) bool) (n int) {
	for _, e := range o.all {
		if !e.over && is(e) {
			n++
		}
	}
	return n
}

// victim is who should go for a newcomer; full says that somebody must.
func (o *plainPlaces) victim(who string) (victim *plainPlace, full bool) {
	full = o.count(func(e *plainPlace) bool { return !e.evicted }) >= o.terms.Most
	most := 0
	for _, e := range o.all {
		if e.over || e.evicted {
			continue
		}
		held := o.count(func(f *plainPlace) bool { return f.who == e.who })
		if e.who == who {
			held++
		}
		if held > most {
			victim, most = e, held
		}
	}
	if o.count(func(f *plainPlace) bool { return f.who == who })+1 > most {
		victim = nil
	}
	return victim, full
}

// Newcomers of few and many accounts enter, leave, are evicted and go late, at random.
func TestPlacesDoAsAListOfAllThatEnteredSays(t *testing.T) {
	for seed := range uint64(soak.Cases(200)) {
		r := rand.New(rand.NewPCG(seed, 5))
		o := &plainPlaces{terms: Terms{Most: 1 + r.IntN(12)}}
		p, now := New(o.terms), time.Unix(0, 0)
		accounts := 1 + r.IntN(20)
		for range 200 {
			now = now.Add(time.Duration(r.IntN(1000)) * time.Millisecond)
			if len(o.all) > 0 && r.IntN(3) == 0 {
				if e := o.all[r.IntN(len(o.all))]; !e.over {
					e.x.Leave()
					e.over = true
				}
				continue
			}
			who := fmt.Sprint(r.IntN(accounts) * r.IntN(2))
			victim, full := o.victim(who)
			late := o.count(func(e *plainPlace) bool { return e.evicted })
			refused := late >= 4*o.terms.Most || late >= o.terms.Most && o.count(func(e *plainPlace) bool { return e.who == who }) > 0
			mine, gone := p.Enter(now, who)
			require.Equal(t, !refused && (!full || victim != nil), mine != nil, "seed %d", seed)
			if mine == nil {
				continue
			}
			if full {
				require.Same(t, victim.x, gone, "seed %d", seed)
				victim.evicted = true
			} else {
				require.Nil(t, gone, "seed %d", seed)
			}
			o.all = append(o.all, &plainPlace{who: who, x: mine})
			require.LessOrEqual(t, len(p.Under), o.terms.Most)
			require.LessOrEqual(t, p.Evicted, 4*o.terms.Most)
		}
		for _, e := range o.all {
			if !e.over {
				e.x.Leave()
			}
		}
		require.Empty(t, p.Under, "seed %d", seed)
		require.Zero(t, p.Evicted)
		p.sweep(now.Add(time.Hour))
		require.Empty(t, p.Accounts, "what holds nothing is forgotten")
	}
}

// No account takes more in any time than its burst and what the time brings.
func TestNoAccountTakesPlacesFasterThanItMay(t *testing.T) {
	for seed := range uint64(soak.Cases(50)) {
		r := rand.New(rand.NewPCG(seed, 6))
		terms := Terms{Most: 1000, Burst: float64(1 + r.IntN(50)), PerSecond: float64(1 + r.IntN(50))}
		p, start := New(terms), time.Unix(0, 0)
		now := start
		took := map[string]int{}
		for range 2000 {
			now = now.Add(time.Duration(r.IntN(10_000)) * time.Microsecond)
			who := fmt.Sprint(r.IntN(3))
			if mine, _ := p.Enter(now, who); mine != nil {
				took[who]++
				mine.Leave()
				require.LessOrEqual(t, float64(took[who]), terms.Burst+terms.PerSecond*now.Sub(start).Seconds()+1e-6, "seed %d", seed)
			} else {
				require.False(t, p.Affords(now, who))
			}
		}
		now = now.Add(time.Minute)
		for range int(terms.Burst) {
			mine, _ := p.Enter(now, "0")
			require.NotNil(t, mine, "seed %d: time brings it all back", seed)
			mine.Leave()
		}
	}
}

package transport

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
	terms placeTerms
	all   []*plainPlace
}

type plainPlace struct {
	who           string
	x             *place
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
	full = o.count(func(e *plainPlace) bool { return !e.evicted }) >= o.terms.most
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
		o := &plainPlaces{terms: placeTerms{most: 1 + r.IntN(12)}}
		p, now := newPlaces(o.terms), time.Unix(0, 0)
		accounts := 1 + r.IntN(20)
		for range 200 {
			now = now.Add(time.Duration(r.IntN(1000)) * time.Millisecond)
			if len(o.all) > 0 && r.IntN(3) == 0 {
				if e := o.all[r.IntN(len(o.all))]; !e.over {
					e.x.leave()
					e.over = true
				}
				continue
			}
			who := fmt.Sprint(r.IntN(accounts) * r.IntN(2))
			victim, full := o.victim(who)
			late := o.count(func(e *plainPlace) bool { return e.evicted })
			refused := late >= 4*o.terms.most || late >= o.terms.most && o.count(func(e *plainPlace) bool { return e.who == who }) > 0
			mine, gone := p.enter(now, who)
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
			require.LessOrEqual(t, len(p.under), o.terms.most)
			require.LessOrEqual(t, p.evicted, 4*o.terms.most)
		}
		for _, e := range o.all {
			if !e.over {
				e.x.leave()
			}
		}
		require.Empty(t, p.under, "seed %d", seed)
		require.Zero(t, p.evicted)
		p.sweep(now.Add(time.Hour))
		require.Empty(t, p.accounts, "what holds nothing is forgotten")
	}
}

// No account takes more in any time than its burst and what the time brings.
func TestNoAccountTakesPlacesFasterThanItMay(t *testing.T) {
	for seed := range uint64(soak.Cases(50)) {
		r := rand.New(rand.NewPCG(seed, 6))
		terms := placeTerms{most: 1000, burst: float64(1 + r.IntN(50)), perSecond: float64(1 + r.IntN(50))}
		p, start := newPlaces(terms), time.Unix(0, 0)
		now := start
		took := map[string]int{}
		for range 2000 {
			now = now.Add(time.Duration(r.IntN(10_000)) * time.Microsecond)
			who := fmt.Sprint(r.IntN(3))
			if mine, _ := p.enter(now, who); mine != nil {
				took[who]++
				mine.leave()
				require.LessOrEqual(t, float64(took[who]), terms.burst+terms.perSecond*now.Sub(start).Seconds()+1e-6, "seed %d", seed)
			} else {
				require.False(t, p.affords(now, who))
			}
		}
		now = now.Add(time.Minute)
		for range int(terms.burst) {
			mine, _ := p.enter(now, "0")
			require.NotNil(t, mine, "seed %d: time brings it all back", seed)
			mine.leave()
		}
	}
}

// Sixty-four hosts want as much as they can get, and a new one comes now and then. Who is evicted may be gone at once, or late.
func TestAFloodOfManyHostsIsHeldToWhatAllMayTakeAndANewHostGetsIn(t *testing.T) {
	for _, lasts := range []time.Duration{0, 2 * listenTimeout} {
		a, now := newAdmission(unprovedTerms), time.Unix(0, 0)
		flood, late := 0, 0
		type ghost struct {
			x    *place
			gone time.Time
		}
		var ghosts []ghost
		evict := func(x *place) {
			if x != nil {
				ghosts = append(ghosts, ghost{x, now.Add(lasts)})
			}
		}
		for ms := range 20_000 {
			now = now.Add(time.Millisecond)
			for len(ghosts) > 0 && !now.Before(ghosts[0].gone) {
				ghosts[0].x.leave()
				ghosts = ghosts[1:]
			}
			for host := range 64 {
				mine, gone := a.enter(now, fmt.Sprint("flood", host), true, false)
				if evict(gone); mine != nil {
					flood++
				}
			}
			if ms%500 != 499 {
				continue
			}
			late++
			mine, gone := a.enter(now, fmt.Sprint("late", late), true, false)
			require.NotNil(t, mine)
			evict(gone)
			for host := range 64 { // an honest one needs some round trips
				_, gone := a.enter(now, fmt.Sprint("flood", host), true, false)
				require.NotSame(t, mine, gone)
				evict(gone)
			}
			mine.leave()
		}
		require.Less(t, flood, 5*512+20*200, "stranger hosts share a bound")
	}
}

func TestAFloodFromAMembersHostHarmsNoOtherMember(t *testing.T) {
	a, now := newAdmission(unprovedTerms), time.Unix(0, 0)
	for i := range 20_000 {
		now = now.Add(100 * time.Microsecond)
		for who, known := range map[string]bool{"one": true, fmt.Sprint("stranger", i%64): false} {
			if _, gone := a.enter(now, who, true, known); gone != nil {
				gone.leave()
			}
		}
		if i%1000 == 999 {
			mine, gone := a.enter(now, fmt.Sprint("member", i), true, true)
			require.NotNil(t, mine)
			if gone != nil {
				require.Same(t, a.members.accounts["one"], gone.account)
				gone.leave()
			}
			mine.leave()
		}
	}
}

func TestTheAccountsThatAreRememberedAreBounded(t *testing.T) {
	a, r := newAdmission(unprovedTerms), rand.New(rand.NewPCG(1, 1))
	now := time.Unix(0, 0)
	for range 100_000 {
		now = now.Add(time.Duration(r.IntN(1000)) * time.Microsecond)
		a.enter(now, fmt.Sprint(r.IntN(1<<20)), true, false)
		require.LessOrEqual(t, len(a.strangers.accounts), accountsMax+5*handshakesMost)
	}
}

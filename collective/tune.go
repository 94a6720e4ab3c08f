package collective

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weft-project/weft/collective/internal/plan"
)

// Up to so many bytes of all members together, all get all arrays and fold alone: more bytes, but
// fewer messages. Between two members it costs no bytes more, but what is folded twice must lie in
// a cache.
const (
	small     = 32 << 10
	smallNear = 1 << 20 // where all members are on one host
	smallPair = 4 << 20 // of two members
)

// choices are the algorithms of kinds whose members bring arrays of one size. All members have the
// same.
type choices map[plan.Kind][]choice

// choice is for arrays of that many bytes at most that no choice before it is for.
type choice struct {
	upTo int
	by   plan.Algorithm
}

// settleOn notes on which hosts the members are; "" is a host, too.
func (g *Group) settleOn(hosts []string) {
	var seen []string
	g.layout = nil
	for _, host := range hosts {
		if !slices.Contains(seen, host) {
			seen = append(seen, host)
		}
		g.layout = append(g.layout, slices.Index(seen, host))
	}
	size, few := len(hosts), small
	if len(seen) == 1 && hosts[0] != "" {
		few = smallNear
	}
	c := choices{}
	if size > 2 {
		c[plan.Broadcast] = []choice{{few / size, plan.Tree}}
	} else if size == 2 {
		few = smallPair
	}
	c[plan.AllReduce] = []choice{{few / size, plan.Spread}}
	g.choices.Store(&c)
}

// pick chooses an algorithm; all members choose alike.
func (g *Group) pick(c context.Context, kind plan.Kind, bytes int) plan.Algorithm {
	if by := placeIn(c).by; by.Does(kind) {
		return by
	}
	for _, choice := range (*g.choices.Load())[kind] {
		if bytes <= choice.upTo {
			return choice.by
		}
	}
	if kind == plan.Barrier {
		return plan.Spread
	}
	return g.large(kind)
}

// large is the algorithm for arrays of any size: Hosts where several hosts have members, and one of
// them has several.
func (g *Group) large(kind plan.Kind) plan.Algorithm {
	if last := slices.Max(g.layout); last > 0 && last < len(g.layout)-1 && plan.Hosts.Does(kind) {
		return plan.Hosts
	}
	return plan.Direct
}

// What Tune tries: arrays of tuneFrom bytes, and four times as many, up to tuneTo; and Spread for
// as many bytes of all members together.
const (
	tuneFrom   = 1 << 10
	tuneTo     = 4 << 20
	tuneSpread = 64 << 20
	tuneRounds = 5
)

// tuned are the kinds that Tune measures, and the algorithms that it compares.
func (g *Group) tuned() map[plan.Kind][]plan.Algorithm {
	all := map[plan.Kind][]plan.Algorithm{
		plan.AllReduce: {plan.Spread, plan.Direct, plan.Ring},
		plan.Broadcast: {plan.Tree, plan.Direct, plan.Ring},
	}
	for kind := range all {
		if by := g.large(kind); by != plan.Direct {
			all[kind] = append(all[kind], by)
		}
	}
	return all
}

// Tune measures AllReduce and Broadcast by each of their algorithms, at sizes from 1 KiB to 4 MiB,
// and has the group use what was fastest: medians of five, of the slowest member. All members call
// it, and nothing else is under way meanwhile. It takes a second at most on one host. Untuned
// groups, and the next generation of a tuned one, choose by sizes that suited one host and a fast
// network. Where it fails the group chooses as before.
func (g *Group) Tune(c context.Context) error {
	if err := there(g); err != nil {
		return fmt.Errorf("collective: tune: %w", err)
	}
	if err := g.tune(c, tuneTo); err != nil {
		return fmt.Errorf("collective: tune group %q: %w", g.name, err)
	}
	return nil
}

func (g *Group) tune(c context.Context, most int) error {
	if err := g.whole(c); err != nil {
		return err
	}
	found := choices{}
	for kind := plan.AllReduce; kind.Known(); kind++ {
		by := g.tuned()[kind]
		if by == nil {
			continue
		}
		var fastest []choice
		for bytes := tuneFrom; bytes <= most; bytes *= 4 {
			took, err := g.compare(c, kind, bytes, by)
			if err != nil {
				return err
			}
			best := by[slices.Index(took, slices.Min(took))]
			if n := len(fastest); n > 0 && fastest[n-1].by == best {
				fastest = fastest[:n-1]
			}
			fastest = append(fastest, choice{2 * bytes, best}) // half way to the next size
		}
		if n := len(fastest) - 1; fastest[n].by == plan.Spread {
			fastest[n].upTo = max(fastest[n].upTo, tuneSpread/len(g.members)) // not measured above
		} else {
			fastest[n].upTo = math.MaxInt
		}
		found[kind] = fastest
	}
	g.choices.Store(&found)
	return nil
}

// compare gives the seconds of each algorithm, the same on all members.
func (g *Group) compare(c context.Context, kind plan.Kind, bytes int, by []plan.Algorithm) ([]float64, error) {
	x, took := make([]float32, bytes/4), make([][]float64, len(by))
	for round := range 1 + tuneRounds { // the first warms up
		for i, a := range by {
			if a == plan.Spread && bytes > tuneSpread/len(g.members) {
				took[i] = append(took[i], math.Inf(1))
				continue
			}
			at := placeIn(c)
			at.by = a
			began := time.Now()
			if err := reduceOrBroadcast(context.WithValue(c, placeKey{}, at), g, kind, x); err != nil {
				return nil, err
			}
			if round > 0 {
				took[i] = append(took[i], time.Since(began).Seconds())
			}
		}
	}
	medians := make([]float64, len(by))
	for i, t := range took {
		slices.Sort(t)
		medians[i] = t[len(t)/2]
	}
	return medians, AllReduce(c, g, medians, Max)
}

func reduceOrBroadcast(c context.Context, g *Group, kind plan.Kind, x []float32) error {
	if kind == plan.Broadcast {
		return Broadcast(c, g, x, 0)
	}
	return AllReduce(c, g, x, Sum)
}

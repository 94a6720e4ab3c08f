package main

import (
	"math"
	"math/rand/v2"
)

// setting is what is simulated. Times are seconds, rates bytes a second.
type setting struct {
	Seed      uint64
	Workers   int
	Groups    []int   // members of a group, from the lowest level up
	Params    float64 // of the model
	Bytes     float64 // of an element as it travels
	Every     float64 // inner steps between exchanges
	Pace      float64 // an inner step, the median
	Uplink    float64 // the median
	Slowest   float64 // uplink that may take part
	LossEvery float64 // from one loss of a worker to its next, the mean: of its link, or of itself
	Cut       float64 // for how long a link is lost, the mean
	Away      float64 // for how long a worker has left, the mean
	AdmitAt   int     // newcomers come in at each so many outer steps
	Outer     int     // outer steps to simulate
}

const (
	hour = 3600.0
	mbit = 1e6 / 8

	detect    = 3.0  // until a silent worker counts as lost: rpc's default
	attempts  = 5    // of an exchange, before it is left out
	noteBytes = 1500 // of the small messages of an exchange, to each other member
	joinBytes = 8    // of an element, for a newcomer: value and momentum
	spread    = 0.25 // of the logarithms of paces
	uplinks   = 0.8  // and of uplinks
)

// usual is 100 million parameters as int4, over links of homes.
func usual(workers int, groups ...int) setting {
	return setting{
		Seed: 1, Workers: workers, Groups: groups, Params: 1e8, Bytes: 0.5 + 4.0/256, Every: 500, Pace: 1, Uplink: 50 * mbit, Slowest: 10 * mbit,
		LossEvery: 12 * hour, Cut: 60, Away: hour, AdmitAt: 10, Outer: 60,
	}
}

// worker is one of them.
type worker struct {
	r          *rand.Rand
	pace       float64
	uplink     float64
	latency    float64
	lost, back float64 // its next loss, or the one it is away by
	newcomer   bool    // it is back, and not taken in yet
}

func newWorkers(s setting) []*worker {
	all := make([]*worker, s.Workers)
	for i := range all {
		r := rand.New(rand.NewPCG(s.Seed, uint64(i)))
		w := &worker{r: r, pace: s.Pace * math.Exp(spread*r.NormFloat64()), latency: 0.01 + 0.14*r.Float64()}
		w.uplink = max(s.Uplink*math.Exp(uplinks*r.NormFloat64()), s.Slowest)
		w.lose(s, 0)
		all[i] = w
	}
	return all
}

// lose draws the next loss after a time: in half of them the worker leaves, and its link alone is
// lost in the others.
func (w *worker) lose(s setting, after float64) {
	away := s.Cut
	if w.r.IntN(2) == 0 {
		away = s.Away
	}
	w.lost = after + s.LossEvery*w.r.ExpFloat64()
	w.back = w.lost + away*w.r.ExpFloat64()
}

// advance has the worker be where it is at a time: one that was away and is back is a newcomer.
func (w *worker) advance(s setting, now float64) {
	for w.back <= now {
		w.newcomer = true
		w.lose(s, w.back)
	}
}

// here says whether it is a member.
func (w *worker) here(now float64) bool { return !w.newcomer && now < w.lost }

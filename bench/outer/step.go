package main

import (
	"cmp"
	"math"
	"slices"
)

// outcome is what a simulation has found. Times are means of an outer step, in seconds.
type outcome struct {
	Links   int     // of a worker, to others
	Sent    float64 // bytes of a worker in an outer step without a loss
	Step    float64
	Worst   float64 // of twenty
	Compute float64 // inner steps, by the fastest
	Network float64 // beyond that: for an exchange that takes longer
	Again   float64 // beyond that: for exchanges that were made again
	Joins   float64 // for newcomers
	Tries   float64 // of an exchange of a group, until it is made or left out
	Broken  float64 // share of tries that a loss has broken
	LeftOut float64 // share of workers whose work is in no outer step: away, not taken in, or lost in an exchange
	FailsBy string  // what costs most, beside inner steps; "nothing": less than a twentieth
	Counts  float64 // share of all workers' time that is inner steps which an outer step has
}

// simulation is one run.
type simulation struct {
	setting
	ws                    []*worker
	groups, tries, broken int
}

func simulate(s setting) (o outcome) {
	sim := &simulation{setting: s, ws: newWorkers(s)}
	o.Links, o.Sent = sim.cost()
	now, times := 0.0, make([]float64, 0, s.Outer)
	for k := range s.Outer {
		joins := 0.0
		for _, w := range sim.ws {
			w.advance(s, now)
		}
		if k%s.AdmitAt == 0 {
			joins = sim.admit(now)
		}
		compute := sim.compute(now + joins)
		took, quiet, left := sim.exchange(now + joins)
		step := joins + max(compute, took)
		o.Joins += joins
		o.Compute += compute
		o.Network += max(quiet-compute, 0)
		o.Again += max(took, compute) - max(quiet, compute)
		o.LeftOut += left
		times = append(times, step)
		now += step
	}
	n := float64(s.Outer)
	o.Step = now / n
	o.Compute, o.Network, o.Again, o.Joins, o.LeftOut = o.Compute/n, o.Network/n, o.Again/n, o.Joins/n, o.LeftOut/n
	o.Counts = (1 - o.LeftOut) * o.Compute / o.Step
	o.Tries, o.Broken = float64(sim.tries)/float64(max(sim.groups, 1)), float64(sim.broken)/float64(max(sim.tries, 1))
	slices.Sort(times)
	o.Worst = times[len(times)*19/20]
	o.FailsBy = o.first()
	return o
}

// first is what fails first.
func (o outcome) first() string {
	if o.LeftOut > 0.5 {
		return "losses: no exchange ends"
	}
	type share struct {
		what string
		cost float64
	}
	most := slices.MaxFunc([]share{
		{"the slowest uplink", o.Network}, {"exchanges made again", o.Again}, {"newcomers", o.Joins}, {"work left out", o.LeftOut * o.Step},
	}, func(a, b share) int { return cmp.Compare(a.cost, b.cost) })
	if most.cost < o.Step/20 {
		return "nothing"
	}
	return most.what
}

// cost is what an outer step asks of a worker that nothing happens to.
func (s *simulation) cost() (links int, bytes float64) {
	part := s.Params * s.Bytes
	for _, n := range s.Groups {
		links += n - 1
		bytes += 2*part*float64(n-1)/float64(n) + noteBytes*float64(n-1)
		part /= float64(n)
	}
	return links, bytes
}

// compute is the time in which the fastest worker makes its inner steps: then it calls the others.
func (s *simulation) compute(now float64) float64 {
	least := math.Inf(1)
	for _, w := range s.ws {
		if w.here(now) {
			least = min(least, w.pace)
		}
	}
	return s.Every * least
}

// admit takes newcomers in. All groups wait for the slowest of those that have any: a member sends
// pieces of parameters and momentum to the others, and each passes its piece on.
func (s *simulation) admit(now float64) (took float64) {
	for lo := 0; lo < len(s.ws); lo += s.Groups[0] {
		group := s.ws[lo:min(lo+s.Groups[0], len(s.ws))]
		comes, slowest := false, math.Inf(1)
		for _, w := range group {
			if !w.newcomer && !w.here(now) {
				continue // away
			}
			comes, slowest = comes || w.newcomer, min(slowest, w.uplink)
			w.newcomer = false
		}
		if comes {
			took = max(took, 2*joinBytes*s.Params/slowest)
		}
	}
	return took
}

// exchange is that of all levels: each group sums what its members have, each of them a piece; then
// those that have the same piece do so, and so on. quiet is what it takes without losses, and left
// the share of workers that are not in it.
func (s *simulation) exchange(now float64) (took, quiet, left float64) {
	ready, calm := make([]float64, len(s.ws)), make([]float64, len(s.ws))
	lacks := make([]bool, len(s.ws))
	for i, w := range s.ws {
		ready[i], calm[i], lacks[i] = now, now, !w.here(now)
	}
	part, apart := s.Params*s.Bytes, 1
	for _, n := range s.Groups {
		for first := range len(s.ws) {
			if first/apart%n != 0 {
				continue // not the first of its group
			}
			var group []int
			for k := range n {
				if i := first + k*apart; i < len(s.ws) && !lacks[i] {
					group = append(group, i)
				}
			}
			s.together(group, part, ready, calm, lacks)
		}
		part, apart = part/float64(n), apart*n
	}
	lost := 0
	for i := range s.ws {
		took, quiet = max(took, ready[i]-now), max(quiet, calm[i]-now)
		if lacks[i] {
			lost++
		}
	}
	return took, quiet, float64(lost) / float64(len(s.ws))
}

// together is an exchange of one group, of so many bytes. It begins when its last member is ready.
func (s *simulation) together(group []int, bytes float64, ready, calm []float64, lacks []bool) {
	if len(group) < 2 {
		return
	}
	s.groups++
	now, quiet := 0.0, 0.0
	for _, i := range group {
		now, quiet = max(now, ready[i]), max(quiet, calm[i])
	}
	quiet += s.takes(group, bytes)
	left := slices.Clone(group)
	done := false
	for range attempts {
		s.tries++
		end := now + s.takes(left, bytes)
		loss := end
		for _, i := range left {
			loss = min(loss, max(s.ws[i].lost, now))
		}
		if done = loss >= end; done {
			now = end
			break
		}
		s.broken++
		now = loss + detect + 3*s.latency(left) // and the next generation
		left = slices.DeleteFunc(left, func(i int) bool { lost := s.ws[i].lost <= now; lacks[i] = lacks[i] || lost; return lost })
	}
	for _, i := range group {
		ready[i], calm[i] = now, quiet
		lacks[i] = lacks[i] || !done
	}
}

// takes is the time of an exchange without a loss: what members say first, the pieces, the sums.
func (s *simulation) takes(group []int, bytes float64) float64 {
	slowest, n := math.Inf(1), float64(len(group))
	for _, i := range group {
		slowest = min(slowest, s.ws[i].uplink)
	}
	return 4*s.latency(group) + (2*bytes*(n-1)/n+noteBytes*(n-1))/slowest
}

func (s *simulation) latency(group []int) (most float64) {
	for _, i := range group {
		most = max(most, s.ws[i].latency)
	}
	return most
}

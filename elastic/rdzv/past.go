package rdzv

// Past is what a node brings from a rendezvous whose store has lost all, so that it goes on where
// that one ended: what workers are told grows, as they tell by it what is old. The zero Past is of
// a node that was in none.
//
// A store in a machine's memory is empty when that machine is started again. What begins there is
// another rendezvous, with a number of its own in every word of its leaders. Who was in the one
// before joins it and brings its Past, so that rounds and epochs go on growing, and the restarts of
// the job are counted on. Those of the last round keep their ranks if they come before the first
// round here.
type Past struct {
	_        struct{} `cbor:",toarray"`
	Rounds   int      // one more than the last round in which it had a place, 0 if it had none
	Epoch    int      // the highest that it has heard of
	Rank     int      // in that round
	Restarts int      // of the job
}

// maxPast bounds what is brought: nobody counts as far.
const maxPast = 1 << 40

func (p Past) possible() bool {
	return min(p.Rounds, p.Epoch, p.Rank, p.Restarts) >= 0 && max(p.Rounds, p.Epoch, p.Restarts) < maxPast && p.Rank < maxNodes
}

// recall takes what a member brings. Before the first round here is complete, those of the last one
// there have stayed, with their ranks.
func (d *decision) recall(m *member, past Past) {
	if past == (Past{}) {
		return
	}
	later := past.Rounds > d.past.Rounds
	d.past.Rounds, d.past.Epoch = max(d.past.Rounds, past.Rounds), max(d.past.Epoch, past.Epoch)
	d.restarts = max(d.restarts, min(past.Restarts, d.cfg.MaxRestarts))
	if !d.formed && later {
		for _, other := range d.members {
			other.rank = -1
		}
	}
	if !d.formed && past.Rounds > 0 && past.Rounds == d.past.Rounds {
		m.rank = past.Rank
	}
	switch {
	case d.phase == Complete && m.counted && m.on == participating && m.place.Round < past.Rounds:
		d.openRound(m.ID + " brings the rounds of another rendezvous") // it cannot take a place that is older than the one it had
	case d.phase == Gathering && d.round < d.past.Rounds:
		d.round = d.past.Rounds
		if !d.deadline.IsZero() { // who has workers that run does not wait for a last call
			d.latest = d.now.Add(d.cfg.Silence / 3)
			if t := d.now.Add(max(d.cfg.Settle, 0)); t.Before(d.deadline) {
				d.deadline = t
			}
		}
	}
}

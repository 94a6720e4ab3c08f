//go:build !race

package rdzv

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// keys is the store, as dumb as can be.
type keys struct {
	values map[string]string
	queues map[string][]string
	blind  bool // it sets without comparing
}

func (k *keys) do(o op) (value []byte) {
	switch o.kind {
	case opSwap:
		if k.values[o.key] == string(o.old) || k.blind {
			k.values[o.key] = string(o.new)
		}
		fallthrough
	case opRead:
		if v, there := k.values[o.key]; there {
			return []byte(v)
		}
	case opSet:
		k.values[o.key] = string(o.new)
	case opDelete:
		delete(k.values, o.key)
	case opPush:
		k.queues[o.key] = append(k.queues[o.key], string(o.new))
	}
	return nil
}

// seat is a peer, what it has yet to do, and what its node was told.
type seat struct {
	*peer
	todo   []op
	seen   string // the bulletin that it saw last
	dead   bool
	left   bool // it is dead when it has done what it has to do
	places map[int]Placement
}

// table is some peers at one store, whose every step is a choice.
type table struct {
	keys
	cfg     Config
	seats   []*seat
	now     time.Time
	crashes int // that may still happen
	doubts  int // how often a peer may still take a living leader for dead
	read    map[string]bulletin
}

func newTable(n int, cfg Config, crashes, doubts int) *table {
	cfg, err := cfg.Populate()
	if err != nil {
		panic(err)
	}
	w := &table{keys: keys{values: map[string]string{}, queues: map[string][]string{}}, read: map[string]bulletin{}, cfg: cfg, now: epochOfTime, crashes: crashes, doubts: doubts}
	for i := range n {
		p := newPeer(Node{ID: idOf(i), Addr: idOf(i), Slots: 1}, cfg, w.now)
		p.founds = 0 // whoever begins it: tables that differ in that alone are one
		w.seats = append(w.seats, &seat{peer: p, todo: p.start(), places: map[int]Placement{}})
	}
	return w
}

// idOf is a name that is found in the bytes of everything that speaks of the node: nothing else
// there is an N with a digit.
func idOf(seat int) string { return fmt.Sprint("N", seat) }

func (w *table) clone() *table {
	out := *w
	out.values, out.queues, out.seats = maps.Clone(w.values), maps.Clone(w.queues), nil
	for _, s := range w.seats {
		p := *s.peer
		if p.state != nil {
			st := *p.state
			st.members, st.wants, st.ended = map[string]*member{}, map[int]*member{}, slices.Clone(st.ended)
			for id, m := range p.state.members {
				m := *m
				st.members[id] = &m
			}
			p.state = &st
		}
		p.news, p.pending, p.reasons = nil, slices.Clone(p.pending), nil
		out.seats = append(out.seats, &seat{peer: &p, todo: slices.Clone(s.todo), seen: s.seen, dead: s.dead, left: s.left, places: maps.Clone(s.places)})
	}
	return &out
}

// choice is one thing that can happen next.
type choice struct {
	seat  int
	what  string
	of    int   // silence: whose
	kills []int // who has crashed unseen until now
}

// choices are all that can happen, crashes and doubts last.
func (w *table) choices() (out []choice) {
	settling := true
	for i, s := range w.seats {
		switch {
		case s.dead:
		case len(s.todo) > 0:
			out = append(out, choice{seat: i, what: "op"})
		default:
			if len(w.queues[keyTo(s.node.ID)]) > 0 {
				out = append(out, choice{seat: i, what: "answer"})
			}
			if s.role == leading && len(w.queues[keyInbox]) > 0 {
				out = append(out, choice{seat: i, what: "inbox"})
			}
			if w.matters(s) {
				out = append(out, choice{seat: i, what: "bulletin"})
			}
			for _, gone := range w.missing(s) {
				out = append(out, choice{seat: i, what: "silence", of: gone})
			}
			if s.role == following && !s.over && len(w.leaders(s)) == 0 {
				out = append(out, choice{seat: i, what: "suspect"})
			}
		}
	}
	if len(out) > 0 {
		settling = false
	}
	for i, s := range w.seats {
		if !s.dead && len(s.todo) == 0 && s.role == leading && !s.state.deadline.IsZero() && (settling || w.crashes == 0) {
			out = append(out, choice{seat: i, what: "deadline"})
		}
	}
	for i, s := range w.seats {
		if settling && !s.dead && len(s.todo) == 0 && !s.over && w.unheard(s) {
			out = append(out, choice{seat: i, what: "live"})
		}
	}
	for i, s := range w.seats {
		if !s.dead && !s.left && w.crashes > 0 {
			out = append(out, choice{seat: i, what: "crash"})
			if len(s.todo) == 0 && s.role != electing {
				out = append(out, choice{seat: i, what: "quit"})
			}
		}
		if !s.dead && w.doubts > 0 && len(s.todo) == 0 && s.role == following && !s.over {
			out = append(out, choice{seat: i, what: "doubt"})
		}
	}
	return out
}

// unheard says that the leader, or one that still believes to be it, and s do not know the same of
// s.
func (w *table) unheard(s *seat) bool {
	return slices.ContainsFunc(w.seats, func(o *seat) bool {
		if o.dead || o.role != leading {
			return false
		}
		m := o.state.members[s.node.ID]
		return m == nil || o.state.phase == Complete && m.on == participating && m.place.Round != s.round
	})
}

// matters says whether there is a bulletin that s would do something about.
func (w *table) matters(s *seat) bool {
	raw := w.values[keySummary]
	return raw != "" && raw != s.seen && w.concerns(raw, s)
}

// overlook has everybody see the bulletin who would do nothing about it, neither now nor later.
func (w *table) overlook() {
	for _, s := range w.seats {
		if raw := w.values[keySummary]; raw != "" && !s.dead && len(s.todo) == 0 && raw != s.seen && !w.concerns(raw, s) {
			s.seen = raw
			s.saw([]byte(raw), w.now)
		}
	}
}

// concerns says whether s would do something about a bulletin.
func (w *table) concerns(raw string, s *seat) bool {
	b := w.bulletin(raw)
	if b.Life != s.life {
		return true
	}
	return b.Term > s.lease.Term || b.Term == s.lease.Term && (b.Vacant || b.Summary.Phase == Closed)
}

// bulletin reads one, each only once. One that cannot be read concerns everybody.
func (w *table) bulletin(raw string) bulletin {
	b, known := w.read[raw]
	if !known {
		var err error
		if b, err = readBulletin([]byte(raw)); err != nil {
			b.Term = 1 << 30
		}
		w.read[raw] = b
	}
	return b
}

// private says that nobody but who does it can tell when an operation is done: states count once a
// lease names them. Those who look from outside are none of them.
func private(o op) bool {
	return strings.HasPrefix(o.key, "state/") && o.kind != opRead || o.key == keyShown
}

// missing are the dead nodes that a leader believes in.
func (w *table) missing(leader *seat) (out []int) {
	for i, s := range w.seats {
		if s.dead && leader.role == leading && leader.state.members[s.node.ID] != nil {
			out = append(out, i)
		}
	}
	return out
}

// leaders are those alive who lead or are about to, as s sees it.
func (w *table) leaders(s *seat) (out []int) {
	for i, o := range w.seats {
		if !o.dead && o != s && (o.role == leading && o.lease.Term >= s.lease.Term || o.role == electing) {
			out = append(out, i)
		}
	}
	return out
}

func (w *table) take(queue string, n int) (out [][]byte) {
	for _, b := range w.queues[queue][:n] {
		out = append(out, []byte(b))
	}
	w.queues[queue] = slices.Clone(w.queues[queue][n:])
	return out
}

// make lets a choice happen.
func (w *table) make(c choice) error {
	s := w.seats[c.seat]
	for _, i := range c.kills {
		w.kill(w.seats[i])
	}
	var err error
	switch c.what {
	case "none":
	case "op":
		for len(s.todo) > 1 && private(s.todo[0]) {
			w.do(s.todo[0])
			s.todo = s.todo[1:]
		}
		o := s.todo[0]
		s.todo = s.todo[1:]
		value := w.do(o)
		for len(s.todo) > 0 && s.todo[0].kind == opDelete {
			w.do(s.todo[0])
			s.todo = s.todo[1:]
		}
		if o.kind == opRead || o.kind == opSwap {
			var more []op
			more, err = s.result(o, value, w.now)
			s.todo = append(s.todo, more...)
		}
	case "answer":
		s.todo = s.answered(w.take(keyTo(s.node.ID), 1)[0], w.now)
	case "inbox":
		s.todo = s.inbox(w.take(keyInbox, len(w.queues[keyInbox])), w.now)
	case "bulletin":
		s.seen = w.values[keySummary]
		s.todo = s.saw([]byte(s.seen), w.now)
	case "silence":
		s.state.members[idOf(c.of)].lastSeen = w.now.Add(-2 * w.cfg.Silence)
		s.state.quiet = time.Time{}
		s.todo = s.tick(w.now)
	case "deadline":
		s.state.deadline = w.now
		s.todo = s.tick(w.now)
	case "live":
		s.nextBeat = w.now
		s.todo = s.live(w.now)
	case "suspect", "doubt":
		if c.what == "doubt" {
			w.doubts--
		}
		s.heard = w.now.Add(-w.cfg.Silence)
		s.todo = s.elect()
	case "crash":
		w.kill(s)
	case "quit":
		s.left, s.todo = true, s.quit("", w.now)
		w.crashes--
	}
	s.todo = slices.DeleteFunc(s.todo, func(o op) bool { return o.key == keyShown }) // which no node reads
	s.dead = s.dead || s.left && len(s.todo) == 0
	if len(s.alarms) > 0 {
		return fmt.Errorf("%s", s.alarms)
	}
	s.hear()
	w.overlook()
	return err
}

func (w *table) kill(s *seat) {
	s.dead, s.todo = true, nil
	w.crashes--
}

// hear takes the news of a node.
func (s *seat) hear() {
	for _, a := range s.news {
		if a.Kind == Place {
			s.places[a.Placement.Round] = a.Placement
		}
	}
	s.news, s.reasons, s.changes = nil, nil, nil
}

// agree checks that no two nodes disagree on a round.
func (w *table) agree() error {
	type seen struct{ nodes, world, source int }
	rounds, ranks := map[int]seen{}, map[[2]int]string{}
	for _, s := range w.seats {
		for r, p := range s.places {
			this := seen{p.Nodes, p.World, p.Source}
			if old, there := rounds[r]; there && old != this {
				return fmt.Errorf("round %d: %+v and %+v", r, old, this)
			}
			rounds[r] = this
			if other, taken := ranks[[2]int{r, p.Rank}]; taken {
				return fmt.Errorf("round %d: rank %d is %s's and %s's", r, p.Rank, other, s.node.ID)
			}
			ranks[[2]int{r, p.Rank}] = s.node.ID
		}
	}
	return nil
}

// settled checks that where nothing more happens everybody alive is in one round, if they are
// enough.
func (w *table) settled() error {
	var alive []*seat
	for _, s := range w.seats {
		if !s.dead {
			alive = append(alive, s)
		}
	}
	if len(alive) < w.cfg.Min {
		return nil
	}
	for _, s := range alive {
		p, placed := s.places[s.round]
		switch {
		case s.over && !s.left:
			return fmt.Errorf("%s was sent away", s.node.ID)
		case !placed:
			return fmt.Errorf("%s has no place", s.node.ID)
		case p.Nodes != min(len(alive), w.cfg.Max):
			return fmt.Errorf("%s is in a round of %d nodes, and %d live", s.node.ID, p.Nodes, len(alive))
		case s.round != alive[0].round:
			return fmt.Errorf("%s is in round %d, and %s in %d", s.node.ID, s.round, alive[0].node.ID, alive[0].round)
		}
	}
	return nil
}

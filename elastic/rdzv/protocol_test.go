package rdzv

import (
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

// keys is the store, as dumb as can be.
type keys struct {
	values map[string]string
	queues map[string][]string
}

func (k *keys) do(o op) (value []byte) {
	switch o.kind {
	case opSwap:
		if k.values[o.key] == string(o.old) {
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
}

func newTable(n int, cfg Config, crashes, doubts int) *table {
	cfg, err := cfg.Populate()
	if err != nil {
		panic(err)
	}
	w := &table{keys: keys{map[string]string{}, map[string][]string{}}, cfg: cfg, now: epochOfTime, crashes: crashes, doubts: doubts}
	for i := range n {
		p := newPeer(Node{ID: fmt.Sprint("n", i), Addr: "h", Slots: 1}, cfg, w.now)
		w.seats = append(w.seats, &seat{peer: p, todo: p.start(), places: map[int]Placement{}})
	}
	return w
}

func (w *table) clone() *table {
	out := *w
	out.values, out.queues, out.seats = maps.Clone(w.values), maps.Clone(w.queues), nil
	for _, s := range w.seats {
		p := *s.peer
		if p.state != nil {
			st := *p.state
			st.members, st.wants = map[string]*member{}, map[int]*member{}
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
	seat int
	what string
}

// choices are all that can happen, crashes and doubts last.
func (w *table) choices() (out []choice) {
	settling := true
	for i, s := range w.seats {
		switch {
		case s.dead:
		case len(s.todo) > 0:
			out = append(out, choice{i, "op"})
		default:
			if len(w.queues[keyTo(s.node.ID)]) > 0 {
				out = append(out, choice{i, "answer"})
			}
			if s.role == leading && len(w.queues[keyInbox]) > 0 {
				out = append(out, choice{i, "inbox"})
			}
			if w.matters(s) {
				out = append(out, choice{i, "bulletin"})
			}
			if s.role == leading && w.missing(s) != nil {
				out = append(out, choice{i, "silence"})
			}
			if s.role == following && !s.over && w.leaderless(s) {
				out = append(out, choice{i, "suspect"})
			}
		}
	}
	if len(out) > 0 {
		settling = false
	}
	for i, s := range w.seats {
		if !s.dead && len(s.todo) == 0 && s.role == leading && !s.state.deadline.IsZero() && (settling || w.crashes == 0) {
			out = append(out, choice{i, "deadline"})
		}
	}
	for i, s := range w.seats {
		if settling && !s.dead && len(s.todo) == 0 && !s.over && w.unheard(s) {
			out = append(out, choice{i, "live"})
		}
	}
	for i, s := range w.seats {
		if !s.dead && !s.left && w.crashes > 0 {
			out = append(out, choice{i, "crash"})
			if len(s.todo) == 0 && s.role != electing {
				out = append(out, choice{i, "quit"})
			}
		}
		if !s.dead && w.doubts > 0 && len(s.todo) == 0 && s.role == following && !s.over {
			out = append(out, choice{i, "doubt"})
		}
	}
	return out
}

// unheard says that the leader and s do not know the same of s.
func (w *table) unheard(s *seat) bool {
	for _, o := range w.seats {
		if !o.dead && o.role == leading {
			m := o.state.members[s.node.ID]
			return m == nil || o.state.phase == Complete && m.on == participating && m.place.Round != s.round
		}
	}
	return false
}

// matters says whether the bulletin that lies there has news for s. One that has none may as well have been seen.
func (w *table) matters(s *seat) bool {
	raw := w.values[keySummary]
	if raw == s.seen {
		return false
	}
	b, err := readBulletin([]byte(raw))
	if err != nil || b.Term > s.lease.Term || b.Term == s.lease.Term && b.Vacant || b.Summary.Phase == Closed || b.Term >= s.beat.Term && s.role == leading && b.Term != s.lease.Term {
		return true
	}
	s.seen = raw
	s.saw([]byte(raw), w.now)
	return false
}

// private says that nobody but who does it can tell when an operation is done: states count once a lease names them.
func private(o op) bool { return strings.HasPrefix(o.key, "state/") && o.kind != opRead }

// missing is a dead node that the leader believes in.
func (w *table) missing(leader *seat) *member {
	for _, s := range w.seats {
		if m := leader.state.members[s.node.ID]; s.dead && m != nil {
			return m
		}
	}
	return nil
}

// leaderless says that nobody alive leads or is about to, as s sees it.
func (w *table) leaderless(s *seat) bool {
	for _, o := range w.seats {
		if !o.dead && o != s && (o.role == leading && o.lease.Term >= s.lease.Term || o.role == electing) {
			return false
		}
	}
	return true
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
	var err error
	switch c.what {
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
		w.missing(s).lastSeen = w.now.Add(-2 * w.cfg.Silence)
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
		s.dead, s.todo = true, nil
		w.crashes--
	case "quit":
		s.left, s.todo = true, s.quit("", w.now)
		w.crashes--
	}
	s.dead = s.dead || s.left && len(s.todo) == 0
	if s.reasonOfIgnored() != "" {
		return fmt.Errorf("%s", s.reasonOfIgnored())
	}
	for _, a := range s.news {
		if a.Kind == Place {
			s.places[a.Placement.Round] = a.Placement
		}
	}
	s.news, s.reasons = nil, nil
	return err
}

func (s *seat) reasonOfIgnored() string {
	for _, r := range s.reasons {
		if strings.Contains(r, "ignored") {
			return r
		}
	}
	return ""
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

// settled checks that where nothing more happens everybody alive is in one round, if they are enough.
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

// mark is the whole of the table as a number; tables with the same one go on in the same ways.
func (w *table) mark(seed maphash.Seed) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, k := range slices.Sorted(maps.Keys(w.values)) {
		h.WriteString(k)
		h.WriteString(withoutBeat(k, w.values[k]))
	}
	for _, k := range slices.Sorted(maps.Keys(w.queues)) {
		h.WriteString(k)
		for _, m := range w.queues[k] {
			h.WriteString(m)
		}
	}
	for _, s := range w.seats {
		h.Write([]byte{b2i(s.dead), b2i(s.left), byte(s.role), byte(s.intent.Kind), byte(s.known), byte(s.round), b2i(s.over), byte(len(s.pending)), byte(s.beat.Term), byte(s.beat.Summary.Round)})
		h.Write(s.raw)
		for _, a := range s.pending {
			h.WriteString(a.ID)
			h.WriteByte(byte(a.Kind))
		}
		for _, o := range s.todo {
			h.WriteByte(byte(o.kind))
			h.WriteString(o.key)
			h.WriteString(withoutBeat(o.key, string(o.new)))
		}
		if st := s.state; st != nil {
			h.Write([]byte{byte(st.round), byte(st.epoch), byte(st.phase), b2i(st.deadline.IsZero()), byte(s.saved)})
			for _, id := range slices.Sorted(maps.Keys(st.members)) {
				m := st.members[id]
				h.WriteString(id)
				h.Write([]byte{byte(m.on), byte(m.rank), byte(m.order), byte(m.place.Round)})
			}
		}
	}
	h.Write([]byte{byte(w.crashes), byte(w.doubts)})
	return h.Sum64()
}

// withoutBeat is a value, but for a bulletin's number, which only orders it.
func withoutBeat(key, value string) string {
	if key != keySummary {
		return value
	}
	b, err := readBulletin([]byte(value))
	if err != nil {
		return value
	}
	return string([]byte{byte(b.Term), b2i(b.Vacant), byte(b.Summary.Phase), byte(b.Summary.Round)})
}

func b2i(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// disturbs says of a choice that it need not happen.
func disturbs(c choice) bool { return c.what == "crash" || c.what == "quit" || c.what == "doubt" }

// explore follows every order of steps, depth first, each table once.
func explore(t *testing.T, start *table, most int) (tables int) {
	seed := maphash.MakeSeed()
	seen := map[uint64]bool{}
	type frame struct {
		w    *table
		path []choice
	}
	stack := []frame{{start, nil}}
	for len(stack) > 0 {
		f := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		mark := f.w.mark(seed)
		if seen[mark] {
			continue
		}
		seen[mark] = true
		require.Less(t, len(seen), most, "the number of states is not bounded")
		choices, quiet := f.w.choices(), true
		for _, c := range choices {
			quiet = quiet && disturbs(c)
			next := f.w.clone()
			path := append(slices.Clone(f.path), c)
			require.NoError(t, next.make(c), "%v", path)
			require.NoError(t, next.agree(), "%v", path)
			stack = append(stack, frame{next, path})
		}
		if quiet {
			require.NoError(t, f.w.settled(), "%v", f.path)
		}
	}
	return len(seen)
}

// In each of them the nodes agree at every step, and whoever lives is in one round when nothing more can happen.
func TestEveryInterleavingOfAFewNodesCrashesAndDoubtsAgreesAndSettles(t *testing.T) {
	cases := []struct{ nodes, least, crashes, doubts int }{{2, 1, 2, 0}, {2, 2, 1, 0}, {2, 1, 0, 1}}
	if soak.Cases(1) > 1 {
		cases = append(cases, []struct{ nodes, least, crashes, doubts int }{{3, 1, 0, 0}, {2, 1, 1, 1}, {3, 1, 1, 0}, {3, 2, 2, 0}, {3, 1, 2, 0}}...)
	}
	for _, tc := range cases {
		cfg := Config{Min: tc.least, Max: tc.nodes, LastCall: -1, Settle: -1}
		n := explore(t, newTable(tc.nodes, cfg, tc.crashes, tc.doubts), 30_000_000)
		t.Logf("%+v: %d states", tc, n)
	}
}

func TestRandomInterleavingsOfManyNodesCrashesAndDoubtsAgreeAndSettle(t *testing.T) {
	for seed := range uint64(soak.Cases(300)) {
		r := rand.New(rand.NewPCG(seed, 9))
		n := 2 + r.IntN(5)
		least := 1 + r.IntN(n)
		w := newTable(n, Config{Min: least, Max: least + r.IntN(n-least+1), LastCall: -1, Settle: -1}, r.IntN(n), r.IntN(4))
		w.cfg.Max = max(w.cfg.Max, n)
		for _, s := range w.seats {
			s.cfg = w.cfg
			s.intent = s.join()
		}
		var path []choice
		for {
			choices := w.choices()
			if len(choices) == 0 || len(path) > 4000 {
				break
			}
			c := choices[r.IntN(len(choices))]
			if disturbs(c) && r.IntN(10) > 0 && len(choices) > 1 {
				continue
			}
			path = append(path, c)
			require.NoError(t, w.make(c), "seed %d: %v", seed, path)
			require.NoError(t, w.agree(), "seed %d: %v", seed, path)
		}
		require.Less(t, len(path), 4000, "seed %d does not settle", seed)
		require.NoError(t, w.settled(), "seed %d: %v", seed, path)
	}
}

package agent

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/internal/process"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/soak"
)

// schedule is the leader's state and some nodes, in a time of their own; in which order things
// happen is random.
type schedule struct {
	r     *rand.Rand
	cfg   rdzv.Config
	state *rdzv.State
	now   time.Time
	come  int
	nodes []*player
	clear map[int]map[int]bool // the ranks that are clear for a round
	hasty bool                 // nodes do not wait for each other
	calm  int                  // nodes come and go the less often
	ends  bool                 // at last all workers end well
	given map[string]int       // the latest round that counts on a node
	done  map[string]int       // the latest of which it has said that it is done
}

// player is a node, with what it was told and has not heard yet.
type player struct {
	*node
	rdzv.Node
	inbox  []rdzv.Action
	worlds []string // of the workers that run; empty: it does not run
	joined []bool   // it asked for its place
	told   []int    // the latest round of which it was told
	heard  []int    // the latest in which it was started, or of which it has heard
	asked  []bool   // it was asked to end
	beat   time.Time
	leaves bool
}

func (s *schedule) event(e rdzv.Event) {
	actions, _ := s.state.Decide(e, s.now)
	if e.Kind == rdzv.Done {
		s.done[e.ID] = e.Round
	}
	for _, a := range actions {
		if a.Kind == rdzv.Place {
			s.given[a.ID] = a.Placement.Round
		}
		for _, p := range s.nodes {
			if p.ID == a.ID && a.Kind != rdzv.Lost {
				p.inbox = append(p.inbox, a)
			}
		}
	}
}

// obey does what a node decides.
func (s *schedule) obey(p *player, d decision) {
	for _, o := range d.orders {
		switch o.deed {
		case launch:
			p.worlds[o.rank], p.joined[o.rank], p.asked[o.rank] = fmt.Sprint(p.place.Round, p.place.World), false, false
			p.told[o.rank], p.heard[o.rank] = p.place.Round, p.place.Round
		case terminate:
			p.asked[o.rank] = true
		case kill:
			s.exits(p, o.rank, process.Status{Code: 137, Signal: 9})
		}
	}
	if d.fail != nil {
		s.event(rdzv.Event{Kind: rdzv.Fail, ID: p.ID, Round: p.place.Round, Rank: p.place.First + d.fail.rank, Nth: d.fail.nth, Why: d.fail.why})
	}
	if d.done {
		s.event(rdzv.Event{Kind: rdzv.Done, ID: p.ID, Round: p.place.Round})
	}
	if d.clear {
		if s.clear[p.next.Round] == nil {
			s.clear[p.next.Round] = map[int]bool{}
		}
		s.clear[p.next.Round][p.next.Rank] = true
	}
	if p.leaves && p.left == 0 && slices.Contains(s.nodes, p) {
		s.nodes = slices.DeleteFunc(s.nodes, func(o *player) bool { return o == p })
		s.event(rdzv.Event{Kind: rdzv.Leave, ID: p.ID})
	}
}

func (s *schedule) exits(p *player, i int, st process.Status) {
	if p.worlds[i] != "" {
		p.worlds[i] = ""
		s.obey(p, p.exited(i, st, false, p.behind(i), "it ended"))
	}
}

// behind are the workers that have asked for their place, and not read the latest.
func (p *player) behind(i int) bool { return p.joined[i] && p.heard[i] < p.told[i] }

// deaf are the workers that have never asked for their place.
func (p *player) deaf(i int) bool { return !p.joined[i] }

// hear has a node take the first thing that it was told.
func (s *schedule) hear(p *player) {
	a := p.inbox[0]
	p.inbox = p.inbox[1:]
	switch a.Kind {
	case rdzv.Place:
		if p.place == nil || a.Placement.Round > max(p.place.Round, p.nextRound()) {
			s.obey(p, p.coming(s.now, a.Placement, a.Why, p.deaf))
		}
	case rdzv.Wait, rdzv.Spare:
		s.obey(p, p.outside(s.now, p.deaf))
	case rdzv.Restart:
		s.obey(p, p.restart(a.Nth, a.Placement))
	case rdzv.Finished, rdzv.Refuse:
		s.obey(p, p.end(s.now, "it is over"))
	}
}

func (p *player) nextRound() int {
	if p.next == nil {
		return -1
	}
	return p.next.Round
}

// may says whether the round that is coming to a node may start.
func (s *schedule) may(p *player) bool {
	return p.next != nil && s.clear[p.next.Round][p.next.Rank] && (s.hasty || len(s.clear[p.next.Round]) == p.next.Nodes)
}

// place starts the round that is coming to a node, and tells those who run.
func (s *schedule) place(p *player) {
	s.obey(p, p.placed(*p.next))
	for i, w := range p.workers {
		if w.phase == running && !w.stale {
			p.told[i] = p.node.place.Round
		}
	}
}

// hears has a worker read its latest place.
func (p *player) hears(i int) {
	if p.joined[i] && p.worlds[i] != "" {
		p.heard[i] = p.told[i]
	}
}

func (s *schedule) join() {
	s.come++
	p := &player{Node: rdzv.Node{ID: fmt.Sprint("n", s.come), Addr: "h", Slots: 1 + s.r.IntN(2)}, beat: s.now}
	p.node = newNode(p.Slots, 5*time.Second)
	p.worlds, p.joined, p.asked = make([]string, p.Slots), make([]bool, p.Slots), make([]bool, p.Slots)
	p.told, p.heard = make([]int, p.Slots), make([]int, p.Slots)
	s.nodes = append(s.nodes, p)
	s.event(rdzv.Event{Kind: rdzv.Join, Node: p.Node, Config: s.cfg})
}

// pass lets a second go by, in which who lives says so.
func (s *schedule) pass() {
	s.now = s.now.Add(time.Second)
	for _, p := range slices.Clone(s.nodes) {
		s.obey(p, p.expire(s.now))
		if s.now.Sub(p.beat) >= s.cfg.Silence/3 {
			p.beat = s.now
			if round, done := s.done[p.ID]; done && round >= s.given[p.ID] {
				s.event(rdzv.Event{Kind: rdzv.Done, ID: p.ID, Round: round})
			} else {
				s.event(rdzv.Event{Kind: rdzv.KeepAlive, ID: p.ID})
			}
		}
	}
	s.event(rdzv.Event{Kind: rdzv.Tick})
}

// step is one thing that happens.
func (s *schedule) step(quiet bool) {
	if len(s.nodes) == 0 {
		s.join()
		return
	}
	p := s.nodes[s.r.IntN(len(s.nodes))]
	i := s.r.IntN(len(p.worlds))
	switch k := s.r.IntN(20); {
	case k < 4 && len(p.inbox) > 0:
		s.hear(p)
	case k < 8 && s.may(p):
		s.place(p)
	case k < 10 && p.asked[i]:
		s.exits(p, i, process.Status{Code: 143, Signal: 15})
	case (k == 10 || k >= 18) && !quiet && p.worlds[i] != "":
		p.joined[i] = p.joined[i] || s.r.IntN(2) == 0
	case k == 11 && !quiet && s.r.IntN(1+s.calm/4) == 0:
		s.join()
	case k == 12 && !quiet && s.r.IntN(2*s.calm) == 0:
		p.leaves = true
		s.obey(p, p.end(s.now, "it leaves"))
	case k == 13 && !quiet && s.r.IntN(2*s.calm) == 0: // its workers die with it
		s.nodes = slices.DeleteFunc(s.nodes, func(o *player) bool { return o == p })
	case k == 14 && !quiet && s.r.IntN(4) == 0:
		s.exits(p, i, process.Status{Code: 1})
	case k == 15:
		s.pass()
	case k == 16:
		p.hears(i)
	case k == 17 && (!quiet || s.ends) && (p.behind(i) || p.next != nil || s.r.IntN(32) == 0):
		s.exits(p, i, process.Status{})
	}
}

// one says whether all workers that know nothing of their places run in one world.
func (s *schedule) one() error {
	var world, who string
	for _, p := range s.nodes {
		for i, w := range p.worlds {
			switch {
			case w == "" || p.joined[i]:
			case who != "" && w != world:
				return fmt.Errorf("a worker of %s is in world %s, one of %s in %s", who, world, p.ID, w)
			default:
				world, who = w, p.ID
			}
		}
	}
	return nil
}

// counted says what is amiss with workers that have ended well: each was started in its node's
// place, or had heard of it, and nobody takes the job to be done before it is.
func (s *schedule) counted() error {
	sum := s.state.Summary()
	done := sum.Phase == rdzv.Closed && !sum.Failed
	for _, p := range s.nodes {
		latest, placed := s.given[p.ID]
		for i, w := range p.workers {
			behind := w.phase == well && p.next == nil && p.heard[i] < p.node.place.Round
			early := done && !p.leaves && placed && latest == sum.Round && (w.phase != well || p.heard[i] < sum.Round)
			if behind || early {
				return fmt.Errorf("round %d counts on worker %d of %s, which is %d, and has heard of %d", latest, i, p.ID, w.phase, p.heard[i])
			}
		}
	}
	return nil
}

// right says what is amiss at any time.
func (s *schedule) right() error { return cmp.Or(s.one(), s.counted()) }

// settled says what is amiss when nothing more comes or goes: everybody who has a place in the last
// round has workers that know of it.
func (s *schedule) settled() error {
	sum := s.state.Summary()
	placed := 0
	for _, p := range s.nodes {
		if sum.Phase != rdzv.Complete || p.node.place == nil || p.node.place.Round != sum.Round {
			continue
		}
		placed++
		for i, w := range p.workers {
			if w.phase != running && w.phase != well || p.heard[i] < sum.Round {
				return fmt.Errorf("round %d counts on worker %d of %s, which is %d, and has heard of %d", sum.Round, i, p.ID, w.phase, p.heard[i])
			}
		}
	}
	for id, round := range s.done {
		if round == sum.Round && !slices.ContainsFunc(s.nodes, func(p *player) bool { return p.ID == id }) {
			placed++ // who is done may go
		}
	}
	if sum.Phase == rdzv.Complete && placed != sum.Nodes {
		return fmt.Errorf("%d nodes of %d are in round %d", placed, sum.Nodes, sum.Round)
	}
	nobody := sum.Phase == rdzv.Gathering && sum.Nodes+sum.Waiting+sum.Redundant == 0
	if nobody && slices.ContainsFunc(s.nodes, func(p *player) bool { _, done := s.done[p.ID]; return done && !p.ending }) {
		return errors.New("a node that is done waits for others, and there are none")
	}
	if s.ends && sum.Phase == rdzv.Complete {
		return errors.New("all workers have ended well, and the job has not")
	}
	return nil
}

// play plays a schedule and says what was amiss.
func play(t *testing.T, seed uint64, hasty bool) error {
	r := rand.New(rand.NewPCG(seed, 17))
	least := 1 + r.IntN(2)
	cfg, err := rdzv.Config{Min: least, Max: least + 1 + r.IntN(2), LastCall: time.Second, MaxRestarts: 1 << 20, Policy: rdzv.Policy(r.IntN(2))}.Populate()
	require.NoError(t, err)
	state, err := rdzv.NewState(cfg)
	require.NoError(t, err)
	s := &schedule{r: r, cfg: cfg, state: state, now: at(0), clear: map[int]map[int]bool{}, hasty: hasty, calm: 1 + 15*r.IntN(2), ends: r.IntN(2) == 0, given: map[string]int{}, done: map[string]int{}}
	for n := range 1000 {
		s.step(n >= 700)
		if err := s.right(); err != nil {
			return fmt.Errorf("seed %d, step %d: %w", seed, n, err)
		}
	}
	for range 200 { // whatever is still on its way
		for _, p := range slices.Clone(s.nodes) {
			for len(p.inbox) > 0 {
				s.hear(p)
			}
			for i, asked := range p.asked {
				p.hears(i)
				switch {
				case asked:
					s.exits(p, i, process.Status{Code: 143, Signal: 15})
				case s.ends && !p.ending:
					s.exits(p, i, process.Status{})
				}
			}
			if s.may(p) {
				s.place(p)
			}
		}
		s.pass()
		if err := s.right(); err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
	}
	return s.settled()
}

func TestRandomSchedulesOfNodesNeverRunTwoWorldsAndSettleInOne(t *testing.T) {
	for seed := range uint64(soak.Cases(800)) {
		require.NoError(t, play(t, seed, false), "seed %d", seed)
	}
}

func TestNodesThatDoNotWaitForEachOtherAreFoundInTwoWorlds(t *testing.T) {
	found := 0
	for seed := range uint64(20) {
		if play(t, seed, true) != nil {
			found++
		}
	}
	require.Greater(t, found, 4)
}

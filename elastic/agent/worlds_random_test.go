package agent

import (
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
}

// player is a node, with what it was told and has not heard yet.
type player struct {
	*node
	rdzv.Node
	inbox  []rdzv.Action
	worlds []string // of the workers that run; empty: it does not run
	joined []bool   // it asked for its place
	asked  []bool   // it was asked to end
	beat   time.Time
	leaves bool
}

func (s *schedule) event(e rdzv.Event) {
	actions, _ := s.state.Decide(e, s.now)
	for _, a := range actions {
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
		case terminate:
			p.asked[o.rank] = true
		case kill:
			s.ends(p, o.rank, process.Status{Code: 137, Signal: 9})
		}
	}
	if d.fail != nil {
		s.event(rdzv.Event{Kind: rdzv.Fail, ID: p.ID, Round: p.place.Round, Rank: p.place.First + d.fail.rank, Nth: d.fail.nth, Why: d.fail.why})
	}
	if d.done {
		s.event(rdzv.Event{Kind: rdzv.Done, ID: p.ID})
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

func (s *schedule) ends(p *player, i int, st process.Status) {
	if p.worlds[i] != "" {
		p.worlds[i] = ""
		s.obey(p, p.exited(i, st, false, "it ended"))
	}
}

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

func (s *schedule) join() {
	s.come++
	p := &player{Node: rdzv.Node{ID: fmt.Sprint("n", s.come), Addr: "h", Slots: 1 + s.r.IntN(2)}, beat: s.now}
	p.node = newNode(p.Slots, 5*time.Second)
	p.worlds, p.joined, p.asked = make([]string, p.Slots), make([]bool, p.Slots), make([]bool, p.Slots)
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
			s.event(rdzv.Event{Kind: rdzv.KeepAlive, ID: p.ID})
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
	switch k := s.r.IntN(16); {
	case k < 4 && len(p.inbox) > 0:
		s.hear(p)
	case k < 8 && s.may(p):
		s.obey(p, p.placed(*p.next))
	case k < 10 && p.asked[i]:
		s.ends(p, i, process.Status{Code: 143, Signal: 15})
	case k == 10 && !quiet && p.worlds[i] != "":
		p.joined[i] = p.joined[i] || s.r.IntN(3) == 0
	case k == 11 && !quiet:
		s.join()
	case k == 12 && !quiet && s.r.IntN(2) == 0:
		p.leaves = true
		s.obey(p, p.end(s.now, "it leaves"))
	case k == 13 && !quiet && s.r.IntN(2) == 0: // its workers die with it
		s.nodes = slices.DeleteFunc(s.nodes, func(o *player) bool { return o == p })
	case k == 14 && !quiet && s.r.IntN(4) == 0:
		s.ends(p, i, process.Status{Code: 1})
	case k == 15:
		s.pass()
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

// settled says what is amiss when nothing more comes or goes: everybody who has a place runs all
// its workers in the last round.
func (s *schedule) settled() error {
	sum := s.state.Summary()
	placed := 0
	for _, p := range s.nodes {
		if p.place == nil || sum.Phase != rdzv.Complete || p.place.Round != sum.Round {
			continue
		}
		placed++
		if p.left < p.Slots {
			return fmt.Errorf("%s runs %d of %d workers", p.ID, p.left, p.Slots)
		}
	}
	if sum.Phase == rdzv.Complete && placed != sum.Nodes {
		return fmt.Errorf("%d nodes of %d are in round %d", placed, sum.Nodes, sum.Round)
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
	s := &schedule{r: r, cfg: cfg, state: state, now: at(0), clear: map[int]map[int]bool{}, hasty: hasty}
	for n := range 1000 {
		s.step(n >= 400)
		if err := s.one(); err != nil {
			return fmt.Errorf("seed %d, step %d: %w", seed, n, err)
		}
	}
	for range 200 { // whatever is still on its way
		for _, p := range slices.Clone(s.nodes) {
			for len(p.inbox) > 0 {
				s.hear(p)
			}
			for i, asked := range p.asked {
				if asked {
					s.ends(p, i, process.Status{Code: 143, Signal: 15})
				}
			}
			if s.may(p) {
				s.obey(p, p.placed(*p.next))
			}
		}
		s.pass()
		if err := s.one(); err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
	}
	return s.settled()
}

func TestRandomSchedulesOfNodesNeverRunTwoWorldsAndSettleInOne(t *testing.T) {
	for seed := range uint64(soak.Cases(200)) {
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

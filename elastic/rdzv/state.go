package rdzv

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weft-project/weft/internal/printable"
)

// Why a node does not take part, or a rendezvous cannot.
var (
	ErrClosed  = errors.New("the rendezvous is closed")
	ErrTimeout = errors.New("the rendezvous has timed out")
	ErrRefused = errors.New("the rendezvous refuses this node")
	ErrTaken   = fmt.Errorf("%w, as another has the same node rank (--node-rank)", ErrRefused)
	ErrLost    = errors.New("the rendezvous has lost this node")
	ErrCorrupt = errors.New("the rendezvous state is corrupt")
	ErrNoStore = errors.New("the rendezvous' store cannot be reached")
	ErrInvalid = errors.New("invalid rendezvous settings")
)

// Policy is what a failed worker costs.
type Policy int

// A failed worker is replaced in its place, or all workers of the job are restarted in a new round,
// as torchrun does.
const (
	ReplaceWorker Policy = iota
	RestartGroup
)

// Config is what all nodes of a job agree on. Min is required; zero values of the rest mean what is
// said there.
type Config struct {
	Min, Max    int           // nodes in a round; Max 0 means Min
	JoinTimeout time.Duration // how long a node waits for a round, and a round for Min nodes; 0 means 600 s
	LastCall    time.Duration // how long the first round stays open for more than Min; 0 means 30 s, less than 0 none
	Settle      time.Duration // how long a later round does after the last who came, for Silence/3 at most; 0 means 200 ms, less than 0 none
	Silence     time.Duration // after how long without a word a node is lost; 0 means 15 s
	MaxRestarts int           // failed workers in the whole life of the job
	Policy      Policy
	Proof       string // something short that all nodes of a job have alike, such as a digest of its secret; "" is alike, too
}

// differs says by the launcher's flags what the job has otherwise than a node: only that, and of a
// token no more than that they differ.
func (cfg Config) differs(node Config) error {
	var job, own []string
	for _, s := range []struct {
		name      string
		job, node any
	}{
		{"nnodes", fmt.Sprintf("%d:%d", cfg.Min, cfg.Max), fmt.Sprintf("%d:%d", node.Min, node.Max)},
		{"max-restarts", cfg.MaxRestarts, node.MaxRestarts},
		{"restart-policy", cfg.Policy, node.Policy},
		{"join_timeout", cfg.JoinTimeout, node.JoinTimeout},
		{"last_call_timeout", cfg.LastCall, node.LastCall},
		{"keep_alive_timeout", cfg.Silence, node.Silence},
		{"settle", cfg.Settle, node.Settle},
	} {
		if s.job != s.node {
			job, own = append(job, fmt.Sprintf("%s=%v", s.name, s.job)), append(own, fmt.Sprintf("%s=%v", s.name, s.node))
		}
	}
	var all []string
	if cfg.Proof != node.Proof {
		all = append(all, map[[2]bool]string{
			{true, true}:  "this node's token is not the job's",
			{true, false}: "the job has a token, and this node has none",
			{false, true}: "the job has no token, and this node has one",
		}[[2]bool{cfg.Proof != "", node.Proof != ""}])
	}
	if job != nil {
		all = append(all, fmt.Sprintf("the job has %s, and this node %s", strings.Join(job, " "), strings.Join(own, " ")))
	}
	return fmt.Errorf("%w: %s; start all nodes with the same", ErrRefused, strings.Join(all, "; "))
}

func (p Policy) String() string {
	if p == RestartGroup {
		return "group"
	}
	return "worker"
}

// maxNodes bounds a rendezvous.
const maxNodes = 1 << 16

// Populate fills in the defaults and reports all that is wrong, in one error that matches
// ErrInvalid.
func (cfg Config) Populate() (Config, error) {
	if cfg.Max == 0 {
		cfg.Max = cfg.Min
	}
	for _, d := range []struct {
		at    *time.Duration
		value time.Duration
	}{{&cfg.JoinTimeout, 600 * time.Second}, {&cfg.LastCall, 30 * time.Second}, {&cfg.Settle, 200 * time.Millisecond}, {&cfg.Silence, 15 * time.Second}} {
		if *d.at == 0 {
			*d.at = d.value
		}
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if cfg.Min < 1 {
		bad("the minimum number of nodes (%d) must be greater than zero", cfg.Min)
	}
	if cfg.Max < cfg.Min || cfg.Max > maxNodes {
		bad("the maximum number of nodes (%d) must be greater than or equal to the minimum number of nodes (%d), and at most %d", cfg.Max, cfg.Min, maxNodes)
	}
	if cfg.JoinTimeout < 0 {
		bad("the join timeout (%v) must be positive", cfg.JoinTimeout)
	}
	if cfg.Silence < 0 {
		bad("the silence after which a node is lost (%v) must be positive", cfg.Silence)
	}
	if cfg.MaxRestarts < 0 {
		bad("the number of restarts (%d) must not be negative", cfg.MaxRestarts)
	}
	if !nameable(cfg.Proof, maxRole) {
		bad("the proof must have at most %d printable bytes", maxRole)
	}
	if cfg.Policy != ReplaceWorker && cfg.Policy != RestartGroup {
		bad("unknown restart policy %d", cfg.Policy)
	}
	if errs != nil {
		return cfg, fmt.Errorf("%w: %w", ErrInvalid, errors.Join(errs...))
	}
	return cfg, nil
}

// Node is who wants to take part: one agent with its workers, in one life.
type Node struct {
	ID    string // of this life of the agent: no two have the same. Printable, 1 to 128 bytes
	Addr  string // by which the others reach it, at most 256 bytes
	Slots int    // workers that it runs, 1 to 4096
	Role  string // of its workers, at most 64 bytes
	Want  int    // the rank that it asks for, counted from 1; 0 means any
}

const (
	maxID, maxAddr, maxRole = 128, 256, 64
	maxSlots                = 4096
)

func (n Node) validate() error {
	switch {
	case !nameable(n.ID, maxID) || n.ID == "":
		return fmt.Errorf("%w: a node's id has 1 to %d printable bytes, not %q", ErrRefused, maxID, clip(n.ID))
	case !nameable(n.Addr, maxAddr):
		return fmt.Errorf("%w: a node's address has at most %d printable bytes, not %q", ErrRefused, maxAddr, clip(n.Addr))
	case !nameable(n.Role, maxRole):
		return fmt.Errorf("%w: a role has at most %d printable bytes, not %q", ErrRefused, maxRole, clip(n.Role))
	case n.Slots < 1 || n.Slots > maxSlots:
		return fmt.Errorf("%w: a node runs 1 to %d workers, not %d", ErrRefused, maxSlots, n.Slots)
	case n.Want < 0 || n.Want > maxNodes:
		return fmt.Errorf("%w: a node rank is 0 to %d, not %d", ErrRefused, maxNodes-1, n.Want-1)
	}
	return nil
}

// nameable says whether a text is fit for a name: it has at most so many bytes, no space, and
// nothing that would steer a terminal.
func nameable(s string, most int) bool {
	return !strings.Contains(s, " ") && printable.Text(s, most) == s
}

// clip is a name of others for a message about it.
func clip(s string) string { return printable.Text(s, maxID) }

// Phase is how far a round is.
type Phase int

// A round gathers nodes, then it is complete; a closed rendezvous has no more rounds.
const (
	Gathering Phase = iota
	Complete
	Closed
)

func (p Phase) String() string {
	if p < Gathering || p > Closed {
		return "unknown"
	}
	return [...]string{"gathering", "complete", "closed"}[p]
}

// list is which of the three lists a node is on.
type list int

const (
	participating list = iota
	waiting            // for the next round
	redundant          // for somebody's place
)

// member is a node that the rendezvous knows.
type member struct {
	Node
	on       list
	counted  bool      // it is on a list
	order    int       // of arrival
	rank     int       // in the latest complete round it was in; -1 before
	stayed   bool      // it was in the round before that, too
	place    Placement // in that round
	since    time.Time // of its standing: on that list, done or not
	fails    int       // of its workers that were counted
	done     bool      // its workers have ended well
	lastSeen time.Time // by the leader's clock
	late     bool      // who looks is shown that it is
	awaited  bool      // the round that gathers waits for a word of it
	expires  time.Time // when its wait for a round ends; zero once it was placed, and while it is redundant
}

// State is the rendezvous of one job. NewState makes one.
type State struct {
	cfg      Config
	round    int // number of the round that is gathering or complete, from 0
	epoch    int // grows with everything that a running worker should know of: a round that formed, a worker that was replaced
	phase    Phase
	outcome  string // why it is closed
	failed   bool   // it was closed because something went wrong
	restarts int    // of MaxRestarts
	source   int    // the lowest rank, in the latest round, of a node that stayed; -1 if none did
	arrivals int
	formed   bool      // a round was complete
	past     Past      // the highest that nodes have brought, but for the rank
	began    time.Time // as the leaders count; zero before the first event
	since    time.Time // of the phase
	ended    []ended   // the last ones, in their order
	looks    int       // grows with everything that can be seen of it

	// What this leader has seen happen: it is told, and not written.
	changes []happened // the last ones
	counted int        // of all
	whys    []string   // since a round was complete

	members map[string]*member
	wants   map[int]*member // those that ask for a rank
	counts  [3]int          // members by list
	done    int             // members that are done
	quiet   time.Time       // nobody is silent for too long, or waits for too long, before

	// deadline is when a gathering round with at least Min nodes is complete, and a complete round
	// gives way to the next because somebody waits; zero if it does neither.
	deadline time.Time
	latest   time.Time // deadline is not put off beyond
	awaited  int       // members that are
	// tooFew is when a gathering round is given up that has lost nodes and has less than Min.
	tooFew time.Time
}

// NewState is a rendezvous that nobody has joined yet.
func NewState(cfg Config) (*State, error) {
	cfg, err := cfg.Populate()
	if err != nil {
		return nil, err
	}
	return &State{cfg: cfg, members: map[string]*member{}, wants: map[int]*member{}}, nil
}

// Summary is what all nodes may know at a glance.
type Summary struct {
	Round, Epoch              int
	Phase                     Phase
	Nodes, Waiting, Redundant int
	Min, Max                  int
	Restarts, MaxRestarts     int
	Failed                    bool   // it is closed because something went wrong
	Outcome                   string // why it is closed
}

// Summary says how things stand.
func (s *State) Summary() Summary {
	return Summary{
		Round: s.round, Epoch: s.epoch, Phase: s.phase,
		Nodes: s.counts[participating], Waiting: s.counts[waiting], Redundant: s.counts[redundant],
		Min: s.cfg.Min, Max: s.cfg.Max, Restarts: s.restarts, MaxRestarts: s.cfg.MaxRestarts, Failed: s.failed, Outcome: s.outcome,
	}
}

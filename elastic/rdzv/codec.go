package rdzv

import (
	"fmt"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// version is of the encoded state and of messages. Another one is refused: the nodes of a job run
// one program.
const version = 5

// maxState bounds an encoded state: maxNodes nodes with all their strings at their longest.
const maxState = maxNodes*(maxID+maxAddr+maxRole+128) + 256<<10

// saved is a State as it is written. Times are durations from when it was written.
type saved struct {
	Version  int           `cbor:"0,keyasint"`
	Config   Config        `cbor:"1,keyasint"`
	Round    int           `cbor:"2,keyasint"`
	Epoch    int           `cbor:"3,keyasint"`
	Phase    Phase         `cbor:"4,keyasint"`
	Outcome  string        `cbor:"5,keyasint,omitempty"`
	Failed   bool          `cbor:"6,keyasint,omitempty"`
	Restarts int           `cbor:"7,keyasint,omitempty"`
	Arrivals int           `cbor:"8,keyasint"`
	Deadline time.Duration `cbor:"9,keyasint,omitempty"`
	TooFew   time.Duration `cbor:"10,keyasint,omitempty"`
	Source   int           `cbor:"11,keyasint"`
	Members  []savedMember `cbor:"12,keyasint"`
	Age      time.Duration `cbor:"13,keyasint,omitempty"`
	For      time.Duration `cbor:"14,keyasint,omitempty"` // of the phase
	Ended    []savedEnded  `cbor:"15,keyasint,omitempty"`
	Formed   bool          `cbor:"16,keyasint,omitempty"`
	Past     Past          `cbor:"17,keyasint"`
}

type savedMember struct {
	_       struct{} `cbor:",toarray"`
	ID      string
	Addr    string
	Slots   int
	Role    string
	Want    int
	On      list
	Order   int
	Rank    int
	Stayed  bool
	Fails   int
	Done    bool
	Expires time.Duration
	For     time.Duration // since it has its standing
	Heard   time.Duration // since it was heard of, where it is late; else 0
}

// until is what is left until t, at least 1 ns; 0 stands for no time.
func until(t, now time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(t.Sub(now), 1)
}

func after(d time.Duration, now time.Time) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return now.Add(d)
}

// age is for how long there has been a rendezvous, as its leaders count.
func (s *State) age(now time.Time) time.Duration {
	if s.began.IsZero() {
		return 0
	}
	return now.Sub(s.began)
}

// elapse takes it that all that can be seen of the state is older by d.
func (s *State) elapse(d time.Duration) {
	if d <= 0 {
		return
	}
	s.began, s.since = s.began.Add(-d), s.since.Add(-d)
	for _, m := range s.members {
		m.since = m.since.Add(-d)
	}
	for i := range s.ended {
		s.ended[i].at = s.ended[i].at.Add(-d)
	}
}

// encode writes the state for another leader to take over.
func (s *State) encode(now time.Time) ([]byte, error) {
	out := saved{
		Version: version, Config: s.cfg, Round: s.round, Epoch: s.epoch, Phase: s.phase, Outcome: s.outcome, Failed: s.failed,
		Restarts: s.restarts, Arrivals: s.arrivals, Deadline: until(s.deadline, now), TooFew: until(s.tooFew, now), Source: s.source,
		Age: s.age(now), For: now.Sub(s.since), Ended: s.saveEnded(now), Formed: s.formed, Past: s.past,
	}
	if s.began.IsZero() {
		out.For = 0
	}
	for _, l := range []list{participating, waiting, redundant} {
		for _, m := range s.sorted(l) {
			out.Members = append(out.Members, savedMember{
				ID: m.ID, Addr: m.Addr, Slots: m.Slots, Role: m.Role, Want: m.Want, On: m.on, Order: m.order,
				Rank: m.rank, Stayed: m.stayed, Fails: m.fails, Done: m.done, Expires: until(m.expires, now), For: now.Sub(m.since), Heard: m.silentFor(now),
			})
		}
	}
	b, err := cbor.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return b, nil
}

// decode reads what encode wrote. Nobody was late who is not said to be; a leader that takes over
// forgives them, too, as it knows only what it has seen itself.
func decode(b []byte, now time.Time) (*State, error) {
	var in saved
	if err := unmarshal(b, maxState, maxNodes, &in); err != nil {
		return nil, err
	}
	cfg, err := in.Config.Populate()
	corrupt := func(format string, args ...any) (*State, error) {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, fmt.Errorf(format, args...))
	}
	switch {
	case in.Version != version:
		return corrupt("version %d, expected %d", in.Version, version)
	case err != nil:
		return corrupt("%w", err)
	case cfg != in.Config:
		return corrupt("settings without their defaults")
	case in.Phase < Gathering || in.Phase > Closed || in.Round < 0 || in.Epoch < 0 || in.Arrivals < 0 || in.Restarts < 0 || in.Restarts > cfg.MaxRestarts || in.Deadline < 0 || in.TooFew < 0 || in.Age < 0 || in.For < 0 || !in.Past.possible():
		return corrupt("a number out of its range")
	}
	s, err := NewState(cfg)
	if err != nil {
		return corrupt("%w", err)
	}
	s.round, s.epoch, s.phase, s.outcome, s.failed = in.Round, in.Epoch, in.Phase, cut(in.Outcome), in.Failed
	s.restarts, s.arrivals, s.source, s.formed, s.past = in.Restarts, in.Arrivals, in.Source, in.Formed, in.Past
	s.deadline, s.tooFew = after(in.Deadline, now), after(in.TooFew, now)
	s.latest = s.deadline
	s.began, s.since, s.looks = now.Add(-in.Age), now.Add(-in.For), 1 // so that the next leader shows it
	if err := s.restoreEnded(in.Ended, now); err != nil {
		return corrupt("%w", err)
	}
	for _, m := range in.Members {
		if err := s.restore(m, now); err != nil {
			return corrupt("%w", err)
		}
	}
	if err := s.replace(); err != nil {
		return corrupt("%w", err)
	}
	return s, nil
}

// restore takes in one member that was read.
func (s *State) restore(in savedMember, now time.Time) error {
	n := Node{ID: in.ID, Addr: in.Addr, Slots: in.Slots, Role: in.Role, Want: in.Want}
	if err := n.validate(); err != nil {
		return err
	}
	switch {
	case s.members[n.ID] != nil:
		return fmt.Errorf("node %s is there twice", n.ID)
	case n.Want != 0 && s.wants[n.Want] != nil:
		return fmt.Errorf("node rank %d is wanted twice", n.Want-1)
	case in.On < participating || in.On > redundant || in.Order < 1 || in.Order > s.arrivals || in.Rank < -1 || in.Rank >= maxNodes || in.Fails < 0 || in.Expires < 0 || in.For < 0 || in.Heard < 0:
		return fmt.Errorf("node %s has a number out of its range", n.ID)
	case in.Done && (in.On != participating || s.phase == Gathering):
		return fmt.Errorf("node %s cannot be done", n.ID)
	}
	m := &member{Node: n, order: in.Order, rank: in.Rank, stayed: in.Stayed, fails: in.Fails, done: in.Done, lastSeen: now.Add(-in.Heard), late: in.Heard > 0,
		expires: after(in.Expires, now), since: now.Add(-in.For)}
	s.enrol(m)
	s.count(m, in.On)
	if m.done {
		s.done++
	}
	return nil
}

// replace works out again what follows from the ranks, and checks that they can be.
func (s *State) replace() error {
	if s.counts[participating] > s.cfg.Max {
		return fmt.Errorf("%d nodes take part, at most %d may", s.counts[participating], s.cfg.Max)
	}
	orders := map[int]bool{}
	for _, m := range s.members {
		if orders[m.order] {
			return fmt.Errorf("two nodes have arrived as number %d", m.order)
		}
		orders[m.order] = true
	}
	if s.phase != Complete {
		return nil
	}
	all := s.sorted(participating)
	ranked := make([]*member, len(all))
	if len(all) == 0 || s.source < -1 || s.source >= len(all) {
		return fmt.Errorf("a complete round of %d nodes", len(all))
	}
	for _, m := range all {
		if m.rank < 0 || m.rank >= len(all) || ranked[m.rank] != nil {
			return fmt.Errorf("node %s cannot have rank %d", m.ID, m.rank)
		}
		ranked[m.rank] = m
	}
	s.assignRanks(ranked, s.source)
	return nil
}

// unmarshal reads CBOR of at most so many bytes and elements.
func unmarshal(b []byte, most, elements int, into any) error {
	if len(b) > most {
		return fmt.Errorf("%w: %d bytes, at most %d expected", ErrCorrupt, len(b), most)
	}
	mode, err := cbor.DecOptions{MaxArrayElements: max(elements, 16), MaxMapPairs: 64, MaxNestedLevels: 4, IndefLength: cbor.IndefLengthForbidden, DupMapKey: cbor.DupMapKeyEnforcedAPF}.DecMode()
	if err == nil {
		err = mode.Unmarshal(b, into)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

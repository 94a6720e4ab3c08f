package rdzv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-project/weft/store"
)

// ErrNone is that there is no rendezvous where one looks for it.
var ErrNone = errors.New("there is no such rendezvous")

// View is a rendezvous as somebody sees it who takes no part. Times are durations as the leaders
// count them, one going on from the last one's word, up to the beat: nobody's wall clock is in
// them.
type View struct {
	Summary
	Config Config
	Leader string        // id of the node that leads; empty: the last one has left
	Term   int           // number of its leadership
	Beat   int           // grows while it lives, six times in Config.Silence
	Age    time.Duration // of the rendezvous
	For    time.Duration // since the phase began
	Left   time.Duration // until a round that gathers takes no more, or, where it has too few, until the first gives it up; 0: that is not known
	Nodes  []Seen        // at the last beat but one at the latest, nil if there are too many to be shown; in the order of their ranks, then who waits, then who is redundant
	Ended  []Parted      // the last ones whose part has ended, the latest first, but for those that are back
}

// Seen is a node of the rendezvous.
type Seen struct {
	Node
	Standing string        // participating, waiting or redundant
	Rank     int           // in the latest complete round it was in, -1 if it was in none
	First    int           // rank of its first worker, -1 if it has no place now
	For      time.Duration // since it is there in that standing
	Done     bool          // its workers have ended well
	Failures int           // of its workers that were counted
	// Silent is since when it was heard of, where it is late with its next word: longer than
	// Config.Late. 0 means that it is not.
	Silent  time.Duration
	Earlier []Parted // its parts that have ended before, the latest first: it is back, or another has come from its address
}

// Parted is a node whose part has ended.
type Parted struct {
	ID, Addr string
	Rank     int // its last, -1 if it had none
	How      End
	Why      string
	Ago      time.Duration
}

// WithoutStore is how long the nodes of the rendezvous go on while its store cannot be reached.
func (v View) WithoutStore() time.Duration { return v.Config.WithoutStore() }

// shown is what a leader shows to those who look: its state, at a beat.
type shown struct {
	_     struct{} `cbor:",toarray"`
	V     int
	Term  int
	Beat  int
	State []byte
}

// maxShown bounds what is shown: etcd takes 1.5 MiB at most.
const maxShown = 1 << 20

// Look reads how a rendezvous stands that has its keys in st, and changes nothing. It is ErrNone
// where there is none, and ErrCorrupt where what lies there is something else.
//
// The leader writes its state for those who look, at most once in a beat, with the last 64 nodes
// whose part has ended. When each node was heard of is not written, as it changes all the time;
// that one is late with its word is, and so is how long a round waits. A node that is back, by its
// name or from the same address, stands in one place.
func Look(c context.Context, st store.Store) (View, error) {
	raw, err := read(c, st, keySummary)
	if err != nil {
		return View{}, err
	}
	return look(c, st, raw)
}

func look(c context.Context, st store.Store, raw []byte) (View, error) {
	if raw == nil {
		return View{}, ErrNone
	}
	b, err := readBulletin(raw)
	if err != nil {
		return View{}, err
	}
	v := View{Summary: b.Summary, Term: b.Term, Beat: b.Beat, Age: b.Age}
	if raw, err = read(c, st, keyLeader); err != nil {
		return v, err
	}
	if l, err := readLease(raw); err == nil && l.Term == b.Term && l.Life == b.Life && !b.Vacant {
		v.Leader = l.Leader
	}
	if raw, err = read(c, st, keyShown); err != nil || raw == nil {
		return v, err
	}
	var in shown
	if err := unmarshal(raw, maxShown+maxMessage, 16, &in); err != nil {
		return v, err
	}
	if in.V != version {
		return v, wrongVersion(in.V)
	}
	at := time.Now()
	s, err := decode(in.State, at)
	if err != nil {
		return v, err
	}
	return v.of(s, at.Add(max(b.Age-s.age(at), 0))), nil
}

// of fills in what the state says, at a later time.
func (v View) of(s *State, now time.Time) View {
	v.Config, v.Nodes = s.cfg, []Seen{}
	if s.phase == v.Phase && s.round == v.Round { // else it is newer than what is shown
		v.For = now.Sub(s.since)
		v.Left = s.left(now)
	}
	earlier := map[string][]Parted{}
	for _, e := range slices.Backward(s.ended) {
		if p := (Parted{ID: e.id, Addr: e.addr, Rank: e.rank, How: e.end, Why: e.why, Ago: now.Sub(e.at)}); e.heir == "" {
			v.Ended = append(v.Ended, p)
		} else if heir := s.heir(e); s.members[heir] != nil {
			earlier[heir] = append(earlier[heir], p)
		}
	}
	for _, m := range s.members {
		n := Seen{
			Node: m.Node, Standing: m.on.String(), Rank: m.rank, First: -1, For: now.Sub(m.since), Done: m.done, Failures: m.fails,
			Silent: m.silentFor(now), Earlier: earlier[m.ID],
		}
		if m.on == participating && s.phase == Complete {
			n.First = m.place.First
		}
		v.Nodes = append(v.Nodes, n)
	}
	slices.SortFunc(v.Nodes, func(a, b Seen) int {
		x, y := s.members[a.ID], s.members[b.ID]
		byRank := 0
		if x.on == participating && s.phase != Gathering {
			byRank = cmp.Compare(a.Rank, b.Rank)
		}
		return cmp.Or(cmp.Compare(x.on, y.on), byRank, cmp.Compare(x.order, y.order))
	})
	return v
}

// heir is the last of those that have come back in the place of one another.
func (s *State) heir(e ended) string {
	for _, next := range s.ended { // who comes later has ended later
		if next.id == e.heir && next.heir != "" && next.at.After(e.at) {
			e = next
		}
	}
	return e.heir
}

// left is until the phase is over if nobody comes.
func (s *State) left(now time.Time) time.Duration {
	first := s.deadline
	if s.phase == Gathering && first.IsZero() {
		first = s.tooFew
		for _, m := range s.members {
			if e := m.expires; !e.IsZero() && (first.IsZero() || e.Before(first)) {
				first = e
			}
		}
	}
	if first.IsZero() {
		return 0
	}
	return max(first.Sub(now), 1)
}

// Follow gives see how the rendezvous stands, and again with every word of its leader, until c is
// over or the store fails.
func Follow(c context.Context, st store.Store, see func(View)) error {
	w, err := st.Watch(c, keySummary)
	if err != nil {
		return err
	}
	defer w.Stop()
	v, err := Look(c, st)
	for err == nil {
		see(v)
		change, open := <-w.C
		if !open {
			return cmp.Or(w.Err(), context.Cause(c))
		}
		v, err = v.advance(c, st, change.New)
	}
	return fmt.Errorf("looking at the rendezvous: %w", err)
}

// advance is the view with a later word of the leader. The store may go with the job's end: then
// that word is all there is.
func (v View) advance(c context.Context, st store.Store, raw []byte) (View, error) {
	within, cancel := context.WithTimeout(c, lookTime)
	defer cancel()
	out, err := look(within, st, raw)
	if err == nil || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNone) || c.Err() != nil {
		return out, err
	}
	b, err := readBulletin(raw)
	if v.For += b.Age - v.Age; b.Summary.Phase != v.Phase || b.Summary.Round != v.Round {
		v.For = 0
	}
	v.Summary, v.Term, v.Beat, v.Age = b.Summary, b.Term, b.Beat, b.Age
	return v, err
}

// lookTime is how long the leader's state is waited for after its word.
const lookTime = 2 * time.Second

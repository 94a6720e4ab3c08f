package collective

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weft-project/weft/collective/internal/desk"
	"github.com/weft-project/weft/collective/internal/postbox"
	"github.com/weft-project/weft/rpc"
)

// Entry is one operation, or message, of this member's in a [Group.Trace].
type Entry struct {
	Key   string    `json:"key,omitempty"` // the scope and the number that members match it by; a message has none
	Call  string    `json:"call"`
	Way   string    `json:"way,omitempty"` // by which buffers are reduced, where the group has several
	Line  string    `json:"line"`          // of the user's code
	State string    `json:"state"`         // pending, done or failed
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended,omitzero"`
	Bytes int       `json:"bytes"`           // that this member brings, or gets as a message
	Waits []Awaited `json:"waits,omitempty"` // for whom it waits, while it is pending
	Error string    `json:"error,omitempty"`
}

// Awaited is a member that an operation waits for.
type Awaited struct {
	Rank   int    `json:"rank"`
	Worker string `json:"worker"`
	Line   string `json:"line,omitempty"` // where it has called the operation; empty where it has not, as far as is known here
}

// traced is how many operations that have ended a group remembers.
const traced = 2000

// record is an operation or message of this member's. It is made into an Entry when somebody asks.
type record struct {
	key   desk.Key
	call  desk.Call
	way   string
	talk  *talked // of a message, in place of key and call
	began time.Time
	ended time.Time
	bytes int
	err   error
}

// talked is a message that is sent or received.
type talked struct {
	send bool
	with int // rank
	tag  int
	what parcel
}

func (t *talked) name() string {
	if t.send {
		return "Send"
	}
	return "Recv"
}

func (t *talked) String() string {
	to := " to "
	if !t.send {
		to = " from "
	}
	return fmt.Sprintf("%s of %s%s%s with tag %d", t.name(), t.what.contents(), to, whom(t.with), t.tag)
}

func (r *record) entry() Entry {
	e := Entry{Line: r.call.Line, State: "pending", Began: r.began, Ended: r.ended, Bytes: r.bytes}
	if r.talk != nil {
		e.Call, e.Line = r.talk.String(), r.talk.what.Line
	} else {
		e.Key, e.Call, e.Way = r.key.String(), r.call.What(), r.way
	}
	if !r.ended.IsZero() {
		e.State = "done"
	}
	if r.err != nil {
		e.State, e.Error = "failed", r.err.Error()
	}
	return e
}

// Trace lists this member's operations and messages: the last 2,000 that have ended, in that order,
// and then all that are pending, the oldest first, with those whom they wait for. It says where a
// group is stuck; compare those of several members. encoding/json makes a file of it.
func (g *Group) Trace() []Entry {
	g.mu.Lock()
	defer g.mu.Unlock()
	past := g.past.All()
	all := make([]Entry, len(past))
	for i := range past {
		all[i] = past[i].entry()
	}
	return append(all, g.pending()...)
}

// pending are the operations and messages that have not ended. The group's lock is held.
func (g *Group) pending() (all []Entry) {
	for k, w := range g.waits {
		if w.run != nil {
			e := w.run.record.entry()
			for _, m := range w.run.on {
				said, _ := g.desk.Said(k, m.Peer)
				e.Waits = append(e.Waits, g.awaited(m.Peer, said.Line))
			}
			all = append(all, e)
		}
	}
	for k, s := range g.talk.sends {
		e := s.record.entry()
		e.Waits = []Awaited{g.awaited(k.to, "")}
		all = append(all, e)
	}
	for r, rc := range g.talk.receives {
		e := rc.record.entry()
		if m := r.Message(); m != nil {
			e.Waits = []Awaited{g.awaited(m.From, m.It.Line)}
		} else if rc.record.talk.with != postbox.Anyone {
			e.Waits = []Awaited{g.awaited(rc.record.talk.with, "")}
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Entry) int { return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.Key, b.Key)) })
	return all
}

func (g *Group) awaited(rank int, line string) Awaited {
	return Awaited{Rank: rank, Worker: g.members[rank].Worker, Line: line}
}

// finish keeps what has ended. The group's lock is held.
func (g *Group) finish(r *record, err error) {
	r.ended, r.err = time.Now(), err
	g.past.Add(*r)
	name := r.call.Kind.String()
	if r.way != "" {
		name += " by " + r.way
	}
	if r.talk != nil {
		name = r.talk.name()
	}
	t := g.tallies[name]
	if t == nil {
		t = &tally{}
		g.tallies[name] = t
	}
	if err != nil {
		t.failed++
		return
	}
	t.done++
	t.bytes += uint64(r.bytes)
	t.time += r.ended.Sub(r.began)
}

// tally is what became of all operations of a kind.
type tally struct {
	done, failed, bytes uint64
	time                time.Duration // of those that are done
}

// status is what this member's worker says of the group to whoever may ask.
func (g *Group) status() rpc.GroupStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	st := rpc.GroupStatus{Name: g.name, Rank: g.rank, Size: len(g.members), Generation: g.Generation()}
	if err := g.desk.Broken(); err != nil {
		st.Ended = err.Error()
	}
	for _, e := range g.pending() {
		p := rpc.GroupPending{Key: e.Key, Call: e.Call, Line: e.Line, Seconds: time.Since(e.Began).Seconds()}
		for _, a := range e.Waits {
			p.Waits = append(p.Waits, rpc.GroupAwaited{Worker: a.Worker, Line: a.Line})
		}
		st.Pending = append(st.Pending, p)
	}
	for _, name := range slices.Sorted(maps.Keys(g.tallies)) {
		t := g.tallies[name]
		st.Totals = append(st.Totals, rpc.GroupTotal{Operation: name, Done: t.done, Failed: t.failed, Bytes: t.bytes, Seconds: t.time.Seconds()})
	}
	return st
}

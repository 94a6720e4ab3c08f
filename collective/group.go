package collective

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-project/weft/collective/internal/ballot"
	"github.com/weft-project/weft/collective/internal/desk"
	"github.com/weft-project/weft/collective/internal/ring"
	"github.com/weft-project/weft/rpc"
)

// Group is some workers that do things together. Make it with Open, Init, Enlist or from another
// group, and end it with Close.
type Group struct {
	w       *rpc.Worker
	name    string
	service string
	roll    ballot.Roll
	rank    int
	members []Member // not changed once others may send notes; Host and Lane are in about
	about   []about
	near    []bool // by rank: large arrays travel there through memory that both ends see
	anyNear bool
	layout  []int // by rank: the host, from 0; all members have the same
	choices atomic.Pointer[choices]
	known   known
	moved   atomic.Int64 // bytes of arrays that this member has read and written in memory
	buffers sync.Pool    // of *bytes.Buffer: notes are put together there
	voting  *voting      // for the next generation
	coming  coming

	life    context.Context // until it is closed
	end     context.CancelFunc
	sound   context.Context // until it ends otherwise than by Close
	fails   context.CancelFunc
	unwatch context.CancelFunc
	stop    []func()
	hide    func() // in the worker's status and metrics
	runs    crew
	closing sync.Once
	owns    func() error  // ends what Init has made; nil: nothing
	over    chan struct{} // closed when the group has ended
	leaving chan struct{} // another member has closed it; of capacity 1

	mu      sync.Mutex
	notes   []traffic // by rank
	desk    *desk.Desk[*arrival]
	waits   map[desk.Key]*wait
	talk    talk
	window  int       // aheadWindow, but in tests
	ahead   []int     // by rank: bytes sent of operations that it is not known to have begun
	heardOf sync.Cond // more is known of who has begun what, or has failed
	past    ring.Ring[record]
	tallies map[string]*tally // by the name of the operation
	ways    []Way             // in the order in which they were offered
	offered bool              // there was one
}

// traffic counts the notes to and from a member. Notes may overtake one another; by these counts a
// member's end is not taken for true before all that it said before it.
type traffic struct {
	sent, got uint64
	closed    bool   // the member has said that it has closed the group
	last      uint64 // how many notes it had sent before
	left      bool   // all of them have arrived
	gone      bool   // the member is lost
}

// wait is an operation that a goroutine waits in.
type wait struct {
	wake chan struct{} // something has changed; of capacity 1
	ends time.Time     // the earliest deadline; zero: none
	by   int           // whose it is
	run  *run          // nil: not begun here yet
}

func (w *wait) notify() { notify(w.wake) }

// Name is the group's.
func (g *Group) Name() string { return g.name }

// Rank is this member's, from 0.
func (g *Group) Rank() int { return g.rank }

// Size is the number of members.
func (g *Group) Size() int { return len(g.members) }

// Generation is 0 for a group that was opened, and grows with each Without and With.
func (g *Group) Generation() uint64 { return g.roll.Generation }

// Worker is the one that takes part.
func (g *Group) Worker() *rpc.Worker { return g.w }

// Members lists all members by rank. Their hosts and lanes are known when all have come.
func (g *Group) Members() []Member {
	all := slices.Clone(g.members)
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, a := range g.about {
		all[i].Host, all[i].Lane = a.host, a.lane
	}
	return all
}

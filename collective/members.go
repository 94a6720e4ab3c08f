package collective

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/weft-project/weft/collective/internal/ballot"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// Member is a worker of a group.
type Member struct {
	Rank        int // in the group
	Worker      string
	WorkerRank  int // in the job
	Incarnation uint64
	Host        string
	Lane        string // by which large arrays travel to it; empty for this member itself
}

// about is what is learned of a member when all have come.
type about struct{ host, lane string }

// who is that member on a roll.
func (m Member) who() ballot.Who {
	return ballot.Who{Name: m.Worker, Life: m.Incarnation, Rank: m.WorkerRank}
}

// whoIs is a worker on a roll.
func whoIs(info rpc.WorkerInfo) ballot.Who {
	return ballot.Who{Name: info.Name, Life: info.Incarnation, Rank: info.Rank}
}

// hostname is for people, and for Hosts; where there is none it is empty.
func hostname() string {
	host, _ := os.Hostname()
	return host
}

// meet notes what is known of the members once all have come, and watches them from now on.
func (g *Group) meet(hosts []string) {
	lanes := map[string]string{}
	for _, l := range g.w.Lanes() {
		lanes[l.Peer] = l.Tensors
	}
	for i, m := range g.members {
		a := about{host: hosts[i]}
		if i != g.rank {
			a.lane = lanes[m.Worker]
		}
		near := a.lane == transport.LaneLocal
		g.mu.Lock() // notes may arrive already
		g.about, g.near, g.anyNear = append(g.about, a), append(g.near, near), g.anyNear || near
		g.mu.Unlock()
	}
	g.settleOn(hosts)
	g.hide = rpc.ShowGroup(g.w, g.status)
	watched, cancel := context.WithCancel(g.life)
	g.unwatch = cancel
	events := g.w.Peers(watched)
	g.runs.Go(func() {
		g.watch(events)
		if watched.Err() == nil { // this worker has left the job
			g.breakUp(fmt.Errorf("%w: %w", ErrClosed, rpc.ErrLeft))
		}
	})
	close(g.coming.ready)
}

// watch breaks the group when a member is gone, also where it went before the first event.
func (g *Group) watch(events <-chan rpc.PeerEvent) {
	for _, m := range g.members {
		g.lookFor(m)
	}
	for e := range events {
		gone := e.Change == rpc.PeerWasLost || e.Change == rpc.PeerHasLeft
		for _, m := range g.members {
			if e.Missed > 0 || gone && m.Worker == e.Name {
				g.lookFor(m)
			}
		}
	}
}

// errAnew is why a life is over that another has followed.
var errAnew = errors.New("it has joined the job anew")

// lookFor ends the group where a member is gone that has not closed it before.
func (g *Group) lookFor(m Member) {
	if m.Rank == g.rank || g.hasLeft(m.Rank) {
		return
	}
	info, err := g.w.Find(g.life, m.Worker)
	if err == nil && info.Incarnation != m.Incarnation {
		err = errAnew
	}
	if err != nil && g.life.Err() == nil {
		g.lose(m, err)
	}
}

func (g *Group) hasLeft(rank int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.notes[rank].left
}

// lose ends the group, and tells the others of it.
func (g *Group) lose(m Member, cause error) {
	err := &LostError{Rank: m.Rank, Worker: m.Worker, Cause: cause}
	g.mu.Lock()
	g.notes[m.Rank].gone = true
	notify(g.leaving)
	g.mu.Unlock()
	if g.breakUp(err) {
		g.tell(note{Failure: packFailure(err)}, m.Rank)
	}
}

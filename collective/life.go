package collective

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// crew is goroutines that are waited for.
type crew struct {
	mu     sync.Mutex
	closed bool
	all    sync.WaitGroup
}

// Go runs fn beside what goes on; false: the crew is closed.
func (r *crew) Go(fn func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.all.Go(fn)
	}
	return !r.closed
}

// Close runs nothing more, and waits for what runs.
func (r *crew) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.all.Wait()
}

// Done is closed when the group has ended; Err says with what.
func (g *Group) Done() <-chan struct{} { return g.over }

// Err is what the group ended with: a [LostError], ErrAborted, ErrExcluded or ErrClosed; nil while
// it lives.
func (g *Group) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.desk.Broken()
}

// Abort ends the group on all members. What is pending, and what comes, fails with ErrAborted, this
// worker's name and the cause. Without may follow, to go on with the same members.
func (g *Group) Abort(cause error) {
	if cause == nil {
		cause = errors.New("no cause was given")
	}
	if g.breakUp(fmt.Errorf("%w: %s: %w", ErrAborted, g.w.Name(), cause)) {
		g.tell(note{Failure: &noteFailure{What: failedAborted, Group: true, Text: cause.Error()}}, g.rank)
	}
}

// breakUp fails all that is pending and all that comes. It says whether that is news.
func (g *Group) breakUp(err error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.desk.Broken() != nil {
		return false
	}
	g.desk.Break(err)
	close(g.over)
	if !errors.Is(err, ErrClosed) { // those that this member leaves wait for all that it has sent
		g.fails()
	}
	for _, w := range g.waits {
		w.notify()
	}
	g.talk.wakeAll()
	g.heardOf.Broadcast()
	for _, a := range append(g.desk.Drain(), g.talk.drain()...) {
		a.release()
	}
	return true
}

// Close ends this member's part in the group. What is pending here fails with ErrClosed, and on the
// others with ErrAborted. Closing twice does nothing. Where the group is that of Init, its worker
// is closed, too, when the others have closed theirs, or after a second.
func (g *Group) Close() error {
	if err := there(g); err != nil {
		return fmt.Errorf("collective: close: %w", err)
	}
	news := g.breakUp(ErrClosed)
	g.sayClosed(true)
	g.mu.Lock()
	owns := g.owns
	g.owns = nil
	g.mu.Unlock()
	if news && owns != nil {
		g.linger()
	}
	g.shut()
	if owns == nil {
		return nil
	}
	return owns()
}

// lingering is for how long who closes a group with its worker waits for others.
const lingering = time.Second

// linger waits until the others have closed the group, too. Who is still in its last operation may
// not have all that was sent, and that would be lost with the links.
func (g *Group) linger() {
	end := time.NewTimer(lingering)
	defer end.Stop()
	for !g.alone() {
		select {
		case <-g.leaving:
		case <-end.C:
			return
		}
	}
}

// alone says whether all others have closed the group, or are gone.
func (g *Group) alone() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for rank, t := range g.notes {
		if rank != g.rank && !t.closed && !t.gone {
			return false
		}
	}
	return true
}

// sayClosed tells the others that this member has closed the group, also where that has ended, and
// whether it leaves, or goes on with the next generation.
func (g *Group) sayClosed(leaves bool) {
	for _, m := range g.members {
		if m.Rank != g.rank {
			g.mu.Lock()
			n := note{Closed: true, Leaves: leaves, Sent: g.notes[m.Rank].sent}
			g.mu.Unlock()
			g.send(n, m.Rank)
		}
	}
}

// retire gives way to the next generation. What was still to be said of the end of this one is of
// no use to those who go on.
func (g *Group) retire(next *Group) {
	g.mu.Lock()
	next.owns, g.owns = g.owns, nil
	g.mu.Unlock()
	if g.breakUp(ErrClosed) {
		g.sayClosed(false)
	} else {
		g.end()
	}
	g.shut()
}

// shut takes no more notes, and waits until what was to be said has been said.
func (g *Group) shut() {
	g.closing.Do(func() {
		g.coming.quit(ErrClosed)
		for _, stop := range g.stop {
			stop()
		}
		g.hide()
		g.unwatch()
		g.runs.Close()
		g.end()
		g.voting.drop()
	})
}

package collective

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// coming is how the members of a group come together. Who has called Open waits for the others. But
// members that open several groups, in different orders, would wait for one another for ever. So
// who waits asks the others now and then. A member that has come says so, and one that waits in the
// Open of another group does. Where all others do one or the other, Open returns, and the first
// operation waits for the rest.
type coming struct {
	service string          // of those that come
	named   chan struct{}   // closed when the group's own service is known
	ready   chan struct{}   // closed when all have come
	quit    func(why error) // ends the waiting; set before anybody else sees the group

	mu     sync.Mutex
	come   map[string]bool // workers
	waits  map[string]bool // workers that wait in an Open
	asking map[string]bool // workers that a question is on its way to
	news   chan struct{}   // of capacity 1
}

func newComing() coming {
	return coming{
		named: make(chan struct{}), ready: make(chan struct{}), quit: func(error) {}, news: make(chan struct{}, 1),
		come: map[string]bool{}, waits: map[string]bool{}, asking: map[string]bool{},
	}
}

// note notes what a worker has answered.
func (m *coming) note(of map[string]bool, worker string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of[worker] = true
	notify(m.news)
}

// openings is the service of a worker that waits in an Open.
const openings = "collective/opening"

// What members ask and answer while a group is made.
const (
	comeAsks    = iota + 1 // are you there?
	comeAnswers            // yes; the group that it has come to follows
)

// Who waits in Open asks for the first time after askFrom, and then after twice as long each time,
// up to askTo.
const (
	askFrom = 20 * time.Millisecond
	askTo   = time.Second
)

// awaitAll waits in Open until all have come, or are known to wait in an Open themselves.
func (g *Group) awaitAll(c context.Context, done <-chan error) error {
	stop := func() {}
	defer func() { stop() }()
	listens := false
	wait := askFrom
	tick := time.NewTimer(wait)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-c.Done():
			g.coming.quit(context.Cause(c))
			return <-done
		case <-g.coming.news:
			if len(g.absent(true)) == 0 && len(g.absent(false)) > 0 { // else all have come, and done says so soon
				return nil
			}
		case <-tick.C:
			if !listens { // unless another Open of this worker does
				if end, err := rpc.OnPost(g.w, openings, g.hearOpening); err == nil {
					stop, listens = end, true
				}
			}
			g.ask()
			wait = min(2*wait, askTo)
			tick.Reset(wait)
		}
	}
}

// absent are the members that have not come, as far as is known; without those that wait in an Open
// where that will do.
func (g *Group) absent(waiting bool) (names []string) {
	m := &g.coming
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range g.members {
		if o.Rank != g.rank && !m.come[o.Worker] && !(waiting && m.waits[o.Worker]) {
			names = append(names, o.Worker)
		}
	}
	return names
}

// ask asks the members that have not come.
func (g *Group) ask() {
	for _, name := range g.absent(false) {
		m := &g.coming
		m.mu.Lock()
		asked := m.asking[name]
		m.asking[name] = true
		m.mu.Unlock()
		if asked {
			continue
		}
		g.runs.Go(func() {
			c, cancel := context.WithTimeout(g.life, patience)
			defer cancel()
			_ = rpc.Post(c, g.w, name, g.coming.service, []byte{comeAsks}) // who cannot be reached has not come
			_ = rpc.Post(c, g.w, name, openings, []byte{comeAsks})
			m.mu.Lock()
			defer m.mu.Unlock()
			delete(m.asking, name)
		})
	}
}

// hearOpening takes what is said among workers that wait in an Open.
func (g *Group) hearOpening(from rpc.WorkerInfo, what []byte, tensors []transport.Tensor) {
	if bytes.Equal(what, g.comes()) {
		what = nil // it waits for this group, as we do
	}
	g.hearWord(openings, g.coming.waits, from, what, tensors)
}

// comes is the answer to a question: this member has come to that group.
func (g *Group) comes() []byte { return append([]byte{comeAnswers}, g.coming.service...) }

// hearComing takes what is said among members.
func (g *Group) hearComing(from rpc.WorkerInfo, what []byte, tensors []transport.Tensor) {
	g.hearWord(g.coming.service, g.coming.come, from, what, tensors)
}

func (g *Group) hearWord(service string, of map[string]bool, from rpc.WorkerInfo, what []byte, tensors []transport.Tensor) {
	for _, t := range tensors { // there should be none
		if t.Buf != nil {
			_ = t.Buf.Release()
		}
	}
	switch {
	case len(what) == 0:
	case what[0] == comeAsks:
		g.runs.Go(func() {
			c, cancel := context.WithTimeout(g.life, patience)
			defer cancel()
			_ = rpc.Post(c, g.w, from.Name, service, g.comes()) // who cannot be reached asks again
		})
	case what[0] == comeAnswers:
		g.coming.note(of, from.Name)
	}
}

// whole waits until all members have come. Where c ends first the group has ended: the others know
// nothing of the operation that was given up.
func (g *Group) whole(c context.Context) error {
	select {
	case <-g.coming.ready:
		return nil
	default:
	}
	g.ask()
	select {
	case <-g.coming.ready:
		return nil
	case <-g.over:
		return g.Err()
	case <-c.Done():
	}
	err := context.Cause(c)
	if errors.Is(c.Err(), context.DeadlineExceeded) {
		err = &LateError{By: g.w.Name(), Missing: g.absent(false)}
	}
	err = fmt.Errorf("not all members have opened the group: %w", err)
	g.breakUp(err)
	g.coming.quit(err)
	return err
}

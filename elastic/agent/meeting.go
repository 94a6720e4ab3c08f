package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weft-project/weft/elastic/internal/localaddr"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/store"
)

// meeting is the node among the others: the rendezvous, the store in which it takes place, and the
// stores of the workers that this node hosts while it has rank 0.
type meeting struct {
	spec *Spec
	addr string
	st   store.Store // the rendezvous', under its prefix
	rdzv *rdzv.Rendezvous
	news chan news

	end    context.CancelFunc
	runs   sync.WaitGroup
	closes []func() error // in their reverse order

	masters []*store.Server // of the last rounds
	hosts   bool            // the rendezvous' store is here
	why     string          // this node leaves before the job is over
	asked   <-chan struct{} // closed when this node is asked to end
	taken   bool            // it would be, but for somebody who has its port
	waits   waits

	own string // the key by which this node said last that it is clear

	mu      sync.Mutex
	ended   bool     // for all nodes
	barrier *barrier // of the round that is coming
}

// news is what the rendezvous says. A place is told twice: when it is coming, and when every node
// of its round is clear of workers of older ones, with the address of the workers' store. err is
// that it cannot go on.
type news struct {
	rdzv.Action
	coming bool
	master string
	err    error
}

// meet finds the rendezvous' store, or makes it, and joins. say gets what people should know while
// it takes long.
func meet(c context.Context, spec *Spec, say func(string), log *slog.Logger) (*meeting, error) {
	life, end := context.WithCancel(context.WithoutCancel(c))
	m := &meeting{spec: spec, addr: cmp.Or(spec.LocalAddr, spec.MasterAddr), news: make(chan news), end: end, asked: c.Done()}
	if !spec.alone() {
		m.waits.reset(spec, time.Now())
		m.waits.say = say
		m.runs.Go(func() { m.waits.announce(life) })
	}
	if err := m.join(c, life, log); err != nil {
		m.leave()
		return nil, err
	}
	m.runs.Go(func() { m.listen(life) })
	return m, nil
}

func (m *meeting) join(c, life context.Context, log *slog.Logger) (err error) {
	spec := m.spec
	var under store.Store
	if spec.alone() {
		under = store.NewMemory()
	} else if under, err = m.reach(c); err != nil {
		return err
	}
	m.closes = append(m.closes, under.Close)
	m.st = RendezvousOf(spec.RunID, under)
	if m.addr == "" {
		m.addr = localaddr.Towards(spec.Endpoint)
	}
	node := rdzv.Node{ID: nodeID(m.addr), Addr: m.addr, Slots: spec.NprocPerNode, Role: spec.Role, Want: spec.WantRank}
	if m.rdzv, err = rdzv.Open(life, m.st, spec.rendezvous(), node, log); err == nil {
		m.waits.joined(m.rdzv, under, time.Now())
	}
	return err
}

// listen hands on what the rendezvous says. A place that is coming is told at once, and then held
// back until its round may start and it is known where the workers meet, with all that comes after
// it; one that is over before is not handed on.
func (m *meeting) listen(c context.Context) {
	var found <-chan news // with the workers' store
	var held []news
	stop := func() {}
	defer func() { stop() }()
	for {
		select {
		case a, more := <-m.rdzv.News:
			if !more {
				if c.Err() == nil {
					err := m.rdzv.Leave(c, "")
					m.report(c, news{err: m.earlier(c, &lostError{m.spec.storeName(), err})})
				}
				return
			}
			m.note(a)
			if a.Kind == rdzv.Refuse {
				a.Err = m.late(m.earlier(c, a.Err))
			}
			if over := a.Kind == rdzv.Place || a.Kind == rdzv.Finished || a.Kind == rdzv.Refuse; over && found != nil {
				stop()
				<-found
				found, held = nil, nil
			}
			switch n := (news{Action: a}); {
			case a.Kind == rdzv.Place:
				b := m.shut(a.Placement.Round)
				m.report(c, news{Action: a, coming: true})
				found, stop = m.look(c, n, b)
			case found != nil:
				held = append(held, n)
			default:
				m.report(c, n)
			}
		case n := <-found:
			for _, n := range append([]news{n}, held...) {
				m.report(c, n)
			}
			stop()
			found, held = nil, nil
		}
	}
}

func (m *meeting) note(a rdzv.Action) {
	m.mu.Lock()
	m.ended = a.Kind == rdzv.Finished
	m.mu.Unlock()
	m.waits.heard(a)
}

// late adds to the end of a node that has waited in vain where it waited, and what to do.
func (m *meeting) late(err error) error {
	if !errors.Is(err, rdzv.ErrTimeout) {
		return err
	}
	return fmt.Errorf("%w; they meet at %s, job %s: start at least %s (--nnodes) with the same --rdzv-endpoint and --rdzv-id, "+
		"or give them more time (--rdzv-conf join_timeout=SECONDS)", err, m.spec.Endpoint, m.spec.RunID, count(m.spec.MinNodes, "node"))
}

// look waits until the round of a place may start, and finds where its workers meet, or is stopped.
func (m *meeting) look(c context.Context, n news, b *barrier) (<-chan news, func()) {
	c, stop := context.WithCancel(c)
	found := make(chan news, 1)
	m.runs.Go(func() {
		if n.err = m.await(c, n.Placement, b); n.err == nil {
			n.master, n.err = m.master(c, n.Placement)
		}
		found <- n
	})
	return found, stop
}

func (m *meeting) report(c context.Context, n news) {
	select {
	case m.news <- n:
	case <-c.Done():
	}
}

// persist does something again and again while the store is away, until c is over. When that has
// been too long is the rendezvous' to say.
func persist(c context.Context, do func() error) error {
	for {
		err := do()
		away := errors.Is(err, store.ErrUnreachable) || errors.Is(err, store.ErrUncertain) || errors.Is(err, store.ErrTimeout)
		if !away || c.Err() != nil {
			return err
		}
		select {
		case <-c.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// leave leaves the rendezvous and ends all that this node hosts.
func (m *meeting) leave() {
	if m.rdzv != nil {
		c, cancel := context.WithTimeout(context.Background(), parting)
		m.runs.Go(func() { m.hasten(c, cancel) })
		if m.hosts {
			m.part(c)
		}
		_ = m.rdzv.Leave(c, cmp.Or(m.why, "its part is over"))
		if !m.hosts { // who has parted needs the store no more
			m.part(c)
		}
		cancel()
	}
	m.end()
	m.runs.Wait()
	for _, s := range m.masters {
		_ = s.Close()
	}
	for i := len(m.closes) - 1; i >= 0; i-- {
		_ = m.closes[i]()
	}
}

const (
	// parting is how long a node that hosts the rendezvous waits for the others to learn of its
	// end.
	parting = 3 * time.Second
	// hurry is how long leaving takes at most after this node was asked to end.
	hurry = parting / 2
)

// hasten ends c earlier where this node is asked to end, or to do so at once: the others may just
// hear of it.
func (m *meeting) hasten(c context.Context, end func()) {
	asked := m.asked
	for {
		select {
		case <-asked:
			asked = nil
			time.AfterFunc(hurry, end)
		case <-m.spec.Abort:
			time.AfterFunc(parting/10, end)
			return
		case <-c.Done():
			return
		}
	}
}

// partedKey is a queue of those who know of the end and need the store no more.
const partedKey = "parted"

// part says that this node knows of the end. If the store is here it waits for all others to say
// so, also those that are redundant or wait. Who is lost says nothing: then it is c that ends this.
func (m *meeting) part(c context.Context) {
	m.mu.Lock()
	ended := m.ended
	m.mu.Unlock()
	if !ended {
		return
	}
	m.conclude(c)
	if m.spec.Meet != nil {
		return // the store outlives them all
	}
	if !m.hosts {
		_ = m.st.Push(c, partedKey, nil)
		return
	}
	all, _ := m.rdzv.Latest()
	for range all.Nodes + all.Waiting + all.Redundant - 1 {
		if _, err := m.st.Pop(c, partedKey); err != nil {
			return
		}
	}
}

package resilient

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// What a letter says.
const (
	letterCalls  = iota + 1 // its sender would be a member
	letterLeaves            // its sender is a member no more
	letterAsks              // for a piece of a state, or for its list
	letterGives
)

// letter goes from one worker to another, beside the group's operations.
type letter struct {
	Kind  uint8  `cbor:"1,keyasint"`
	ID    uint64 `cbor:"2,keyasint,omitempty"` // of a question
	Step  uint64 `cbor:"3,keyasint,omitempty"` // before which the state is
	Entry int    `cbor:"4,keyasint,omitempty"` // −1: the list of all
	Piece int    `cbor:"5,keyasint,omitempty"`
	Error string `cbor:"7,keyasint,omitempty"`
	Bytes int    `cbor:"8,keyasint,omitempty"`
}

// mail is a worker's letters to and from the others of a team. Safe for concurrent use.
type mail struct {
	w       *rpc.Worker
	service string
	keeps   *keeping
	stop    func()
	life    context.Context
	end     context.CancelFunc
	runs    sync.WaitGroup
	news    chan struct{} // of capacity 1

	mu      sync.Mutex
	closed  bool
	members []string
	called  map[string]bool
	left    map[string]bool
	asked   map[uint64]pending
	last    uint64         // question
	giving  map[string]int // how many answers are under way, by who has asked
}

// listen takes the letters of a team of so far these members.
func listen(w *rpc.Worker, team string, members []string, keeps *keeping) (*mail, error) {
	m := &mail{
		w: w, service: "resilient/" + team, keeps: keeps, news: make(chan struct{}, 1), members: members,
		called: map[string]bool{}, left: map[string]bool{}, asked: map[uint64]pending{}, giving: map[string]int{},
	}
	m.life, m.end = context.WithCancel(context.Background())
	stop, err := rpc.OnPost(w, m.service, m.receive)
	if err != nil {
		m.end()
		return nil, fmt.Errorf("this worker is in team %q already: %w", team, err)
	}
	m.stop = stop
	return m, nil
}

// quit tells nobody, and waits for what is under way.
func (m *mail) quit() {
	m.stop()
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.end()
	m.runs.Wait()
}

// sayGone tells members that this one is gone.
func (m *mail) sayGone(c context.Context, members []string) {
	c, cancel := context.WithTimeout(c, time.Second)
	defer cancel()
	var all sync.WaitGroup
	for _, name := range members {
		if name != m.w.Name() {
			all.Go(func() { _ = m.post(c, name, letter{Kind: letterLeaves}) }) // who is gone needs not know
		}
	}
	all.Wait()
}

func (m *mail) post(c context.Context, to string, l letter, tensors ...transport.Tensor) error {
	raw, err := cbor.Marshal(l)
	if err != nil {
		return err
	}
	return rpc.Post(c, m.w, to, m.service, raw, tensors...)
}

// receive takes a letter; it must not wait.
func (m *mail) receive(from rpc.WorkerInfo, header []byte, tensors []transport.Tensor) {
	msg := &transport.Message{Tensors: tensors}
	var l letter
	if cbor.Unmarshal(header, &l) != nil {
		msg.Release()
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	defer func() { // what waits looks again
		select {
		case m.news <- struct{}{}:
		default:
		}
	}()
	switch l.Kind {
	case letterCalls:
		m.called[from.Name] = true
	case letterLeaves:
		m.left[from.Name] = true
	case letterAsks:
		if m.closed || m.giving[from.Name] == mostGiven || !slices.Contains(m.members, from.Name) {
			break // who gets no answer asks another one
		}
		m.giving[from.Name]++
		m.runs.Go(func() { m.give(from.Name, l) })
	case letterGives:
		if q, waits := m.asked[l.ID]; waits && q.to == from.Name {
			delete(m.asked, l.ID)
			a := answer{letter: l}
			a.data, a.err = content(l, tensors)
			q.waits <- a
		}
	}
	msg.Release()
}

// calls are the newcomers that have called.
func (m *mail) calls() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.called))
}

// discard forgets that workers have called: who is there calls again.
func (m *mail) discard(names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		delete(m.called, name)
	}
}

// among says who the members are from now on. What newcomers among them have said before does not
// count.
func (m *mail) among(members []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range members {
		delete(m.called, name)
		if !slices.Contains(m.members, name) {
			delete(m.left, name)
		}
	}
	m.members = members
}

// leaves notes that members leave, as if they had said so in letters.
func (m *mail) leaves(names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		m.left[name] = true
	}
}

// gone are the members that have said that they leave.
func (m *mail) gone(members []string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.left, func(name string, _ bool) bool { return !slices.Contains(members, name) })
	return slices.Sorted(maps.Keys(m.left))
}

// idle waits for a letter, but not for long.
func (m *mail) idle(c context.Context, most time.Duration) {
	end := time.NewTimer(most)
	defer end.Stop()
	select {
	case <-m.news:
	case <-end.C:
	case <-c.Done():
	}
}

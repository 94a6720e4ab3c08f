package state

import (
	"fmt"
	"iter"

	"github.com/weft-project/weft/store/internal/kv"
)

// lineKind is what the clients in a line at a key have in common.
type lineKind byte

const (
	// lineExists waits for a value or something in the queue.
	lineExists lineKind = iota
	// lineTurn is for PyTorch's clients, whose blocking pop is a wait and a pop: a value ends the
	// waiting of all, a push only that of the first, or else all would find the queue empty but
	// one.
	lineTurn
	// lineFetch waits for the values of several keys at one moment. A client leaves its lines when
	// all are there.
	lineFetch
	// lineTake waits for something in the queue, to have it. While there is such a line the queue
	// is empty.
	lineTake
	// lineReady waits for something in the queue, to ask for it then.
	lineReady
	// lineBarrier is at a key and a count, see atCount.
	lineBarrier
	// lineWatch hears of every change.
	lineWatch
	lineKinds
)

// guest is a client that waits or watches. It waits for one thing at a time.
type guest struct {
	id      ClientID
	op      Op       // of the answer it waits for
	missing int      // how many of its keys; it waits while there are any
	keys    []string // of a fetch
	spots   []spot   // where it waits
	single  [1]spot  // room for spots, as nearly all have but one
	watches map[string]*spot
}

// spot is a client's in the line at a key, which is a ring.
type spot struct {
	guest      *guest
	key        string
	prev, next *spot // nil out of the line
	kind       lineKind
}

func (s *State) guest(id ClientID) *guest {
	c := s.guests[id]
	if c == nil {
		c = &guest{id: id}
		s.guests[id] = c
	}
	return c
}

// enter puts p at the end of its line.
func (s *State) enter(p *spot) {
	first := s.lines[p.kind][p.key]
	if first == nil {
		p.prev, p.next = p, p
		s.lines[p.kind][p.key] = p
	} else {
		p.prev, p.next = first.prev, first
		p.prev.next, first.prev = p, p
	}
	s.bytes += interestBytes(p.key)
}

// exit takes p out of its line, if it is in it.
func (s *State) exit(p *spot) {
	switch {
	case p.next == nil:
		return
	case p.next == p:
		delete(s.lines[p.kind], p.key)
	default:
		p.prev.next, p.next.prev = p.next, p.prev
		if s.lines[p.kind][p.key] == p {
			s.lines[p.kind][p.key] = p.next
		}
	}
	p.prev, p.next = nil, nil
	s.bytes -= interestBytes(p.key)
}

func interestBytes(key string) int { return len(key) + EntryBytes }

// line is all spots in a line, the oldest first. It must not change meanwhile.
func (s *State) line(kind lineKind, key string) iter.Seq[*spot] {
	return func(yield func(*spot) bool) {
		first := s.lines[kind][key]
		for p := first; p != nil; {
			if !yield(p) {
				return
			}
			if p = p.next; p == first {
				return
			}
		}
	}
}

// await answers now or later. A client has one request in flight, so a second wait means that it
// has given up the first, which is forgotten.
func (s *State) await(answer Reply, cmd Command, out []Reply) []Reply {
	s.stopWaiting(answer.To)
	kind, keys, missing := lineExists, cmd.Keys, cmd.Keys
	switch cmd.Op {
	case OpTake:
		if s.queues[cmd.Key] != nil {
			answer.Value = s.pop(cmd.Key)
			return append(out, answer)
		}
		kind, keys, missing = lineTake, []string{cmd.Key}, []string{cmd.Key}
	case OpReady:
		if s.queues[cmd.Key] != nil {
			return append(out, answer)
		}
		kind, keys, missing = lineReady, []string{cmd.Key}, []string{cmd.Key}
	case OpFetch:
		kind, missing = lineFetch, without(keys, func(k string) bool { _, there := s.data[k]; return there })
		if len(missing) == 0 {
			return append(out, s.values(answer, keys))
		}
	case OpWait:
		if cmd.Turn {
			kind = lineTurn
		}
		missing = without(keys, s.Has)
		if keys = missing; len(missing) == 0 {
			return append(out, answer)
		}
	}
	if answer.Err = s.roomToWait(keys); answer.Err != nil {
		return append(out, answer)
	}
	s.enqueueWaiter(answer, kind, keys, len(missing))
	return out
}

// without is those of keys which there does not know. While there are none it makes no slice.
func without(keys []string, there func(string) bool) (missing []string) {
	for i, k := range keys {
		if !there(k) {
			if missing == nil {
				missing = make([]string, 0, len(keys)-i)
			}
			missing = append(missing, k)
		}
	}
	return missing
}

func (s *State) roomToWait(keys []string) error {
	more := 0
	for _, k := range keys {
		more += interestBytes(k)
	}
	return s.room(more)
}

// enqueueWaiter puts a client in the lines at keys.
func (s *State) enqueueWaiter(answer Reply, kind lineKind, keys []string, missing int) {
	c := s.guest(answer.To)
	c.op, c.missing = answer.Op, missing
	if kind == lineFetch {
		c.keys = keys
	}
	if c.spots = c.single[:]; len(keys) > 1 {
		c.spots = make([]spot, len(keys))
	}
	for i, k := range keys {
		c.spots[i] = spot{guest: c, key: k, kind: kind}
		s.enter(&c.spots[i])
	}
	s.waiting++
}

// leave ends a client's waiting.
func (s *State) leave(c *guest) {
	for i := range c.spots {
		s.exit(&c.spots[i])
	}
	c.missing, c.keys, c.spots = 0, nil, nil
	s.waiting--
	s.forget(c)
}

func (s *State) forget(c *guest) {
	if c.missing == 0 && len(c.watches) == 0 {
		delete(s.guests, c.id)
	}
}

func (s *State) stopWaiting(id ClientID) {
	if c := s.guests[id]; c != nil && c.missing > 0 {
		s.leave(c)
	}
}

// Drop forgets what a client waits for and watches.
func (s *State) Drop(id ClientID) {
	s.stopWaiting(id)
	if c := s.guests[id]; c != nil {
		for _, p := range c.watches {
			s.exit(p)
		}
		s.watched -= len(c.watches)
		delete(s.guests, id)
	}
}

const all = int(^uint(0) >> 1)

// serve tells up to most clients at the head of a line that their key is there. Those who miss no
// other get their answer.
func (s *State) serve(kind lineKind, key string, most int, out []Reply) []Reply {
	for p := s.lines[kind][key]; p != nil && most > 0; p = s.lines[kind][key] {
		most--
		s.exit(p)
		if c := p.guest; c.missing > 1 {
			c.missing--
		} else {
			s.leave(c)
			out = append(out, Reply{To: c.id, Op: c.op})
		}
	}
	return out
}

// arrived goes through the lines of a key that has got a value and had none.
func (s *State) arrived(key string, out []Reply) []Reply {
	out = s.serve(lineExists, key, all, out)
	out = s.serve(lineTurn, key, all, out)
	var complete []*guest
	for p := range s.line(lineFetch, key) {
		if p.guest.missing--; p.guest.missing == 0 {
			complete = append(complete, p.guest)
		}
	}
	for _, c := range complete {
		out = append(out, s.values(Reply{To: c.id, Op: c.op}, c.keys))
		s.leave(c)
	}
	return out
}

// gone is the opposite of arrived.
func (s *State) gone(key string) {
	for p := range s.line(lineFetch, key) {
		p.guest.missing++
	}
}

// watch begins to tell id of the changes of key. Watching twice is watching once.
func (s *State) watch(id ClientID, key string) error {
	c := s.guests[id]
	if c != nil && c.watches[key] != nil {
		return nil
	}
	if c != nil && len(c.watches) >= s.Limits.Keys {
		return fmt.Errorf("%w: one more than %d watched keys, which are allowed", kv.ErrTooLarge, s.Limits.Keys)
	}
	if err := s.room(interestBytes(key)); err != nil {
		return err
	}
	c = s.guest(id)
	if c.watches == nil {
		c.watches = map[string]*spot{}
	}
	p := &spot{guest: c, key: key, kind: lineWatch}
	c.watches[key] = p
	s.enter(p)
	s.watched++
	return nil
}

func (s *State) unwatch(id ClientID, key string) {
	c := s.guests[id]
	if c == nil || c.watches[key] == nil {
		return
	}
	s.exit(c.watches[key])
	delete(c.watches, key)
	s.watched--
	s.forget(c)
}

func (s *State) news(key string, kind kv.ChangeKind, old, value []byte, out []Reply) []Reply {
	for p := range s.line(lineWatch, key) {
		out = append(out, Reply{To: p.guest.id, Op: OpNews, Event: kind, Key: key, Old: old, Value: value})
	}
	return out
}

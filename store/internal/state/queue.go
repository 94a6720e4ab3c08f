package state

// queue is first in, first out. A queue in a state is never empty; nil is the empty one.
type queue struct {
	items [][]byte
	head  int // items before it are taken
}

func (q *queue) len() int {
	if q == nil {
		return 0
	}
	return len(q.items) - q.head
}

// all is what is in it, oldest first.
func (q *queue) all() [][]byte { return q.items[q.head:] }

func (q *queue) popFront() []byte {
	v := q.items[q.head]
	q.items[q.head] = nil
	if q.head++; q.head > len(q.items)/2 { // each item is moved once at most
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	return v
}

// push hands the value to the client that has been waiting longest to take it, for which there is
// no queue and no change, or else appends it.
func (s *State) push(answer Reply, cmd Command, out []Reply) []Reply {
	if first := s.lines[lineTake][cmd.Key]; first != nil {
		c := first.guest
		s.leave(c)
		return append(out, answer, Reply{To: c.id, Op: OpTake, Value: cmd.Value})
	}
	more := len(cmd.Value) + EntryBytes
	q := s.queues[cmd.Key]
	if q == nil {
		more += len(cmd.Key) + EntryBytes
	}
	if answer.Err = s.room(more); answer.Err != nil {
		return append(out, answer)
	}
	if q == nil {
		q = new(queue)
		s.queues[cmd.Key] = q
	}
	s.bytes += more
	q.items = append(q.items, cmd.Value)
	s.note(Command{Op: OpPush, Key: cmd.Key, Value: cmd.Value})
	return s.call(cmd.Key, s.serve(lineExists, cmd.Key, all, append(out, answer)))
}

// Leaves is drop of a client whose turn it may be at a queue, which it leaves to the next one.
func (s *State) Leaves(id ClientID, out []Reply) []Reply {
	s.Drop(id)
	if key, called := s.called[id]; called {
		delete(s.called, id)
		out = s.call(key, out)
	}
	return out
}

// call tells the first of those who wait to pop from the queue key, if it has something, that it is
// their turn. Who is told and then asks for something else, or goes, has left the value to the next
// one.
func (s *State) call(key string, out []Reply) []Reply {
	for _, kind := range [...]lineKind{lineTurn, lineReady} {
		for before := len(out); s.queues[key] != nil && s.lines[kind][key] != nil && len(out) == before; {
			first := s.lines[kind][key].guest.id
			if out = s.serve(kind, key, 1, out); len(out) > before {
				s.called[first] = key
			}
		}
	}
	return out
}

// pop takes the oldest of a queue that is not empty.
func (s *State) pop(key string) []byte {
	q := s.queues[key]
	v := q.popFront()
	s.bytes -= len(v) + EntryBytes
	if q.len() == 0 {
		delete(s.queues, key)
		s.bytes -= len(key) + EntryBytes
	}
	s.note(Command{Op: OpPop, Key: key})
	return v
}

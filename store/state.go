package store

import (
	"fmt"
	"iter"
	"maps"
	"slices"
)

// clientID names who sent a command and who gets a reply. The shell gives them out and never uses
// one twice.
type clientID uint64

// command is one request. Which fields matter depends on op.
type command struct {
	op       op
	key      string
	keys     []string // check, wait, multiGet, fetch
	pairs    []Pair   // multiSet
	expected []byte   // compareSet
	value    []byte   // set, append, push; what compareSet stores
	delta    int64    // add; the world's size of a barrier, arrive, reach
	turn     bool     // wait: as PyTorch's clients do before a pop, see lineTurn
}

// names is the keys of a command.
func (cmd command) names() []string {
	switch cmd.op {
	case opNumKeys, opList, opCancelWait:
		return nil
	case opCheck, opWait, opMultiGet, opFetch:
		return cmd.keys
	case opMultiSet:
		keys := make([]string, len(cmd.pairs))
		for i, p := range cmd.pairs {
			keys[i] = p.Key
		}
		return keys
	}
	return []string{cmd.key}
}

// checkValues refuses values that are too long. The two of a CompareSet count apart.
func (cmd command) checkValues(s Settings) error {
	for _, v := range [][]byte{cmd.expected, cmd.value} {
		if err := s.CheckValues(v); err != nil {
			return err
		}
	}
	values := make([][]byte, len(cmd.pairs))
	for i, p := range cmd.pairs {
		values[i] = p.Value
	}
	return s.CheckValues(values...)
}

// reply is the answer to a command, of which all have one, or a piece of news. Which fields matter
// depends on op, which is the command's, or opNews. If err is set, the others are not.
type reply struct {
	to     clientID
	op     op
	ok     bool       // check; whether multiGet found all keys
	n      int64      // add, arrive, numKeys, delete, len; how many were in the queue before a pop
	value  []byte     // get, compareSet, pop, take; the new value of news
	values [][]byte   // multiGet, where nil means that the key is missing; fetch
	keys   []string   // list, in no order
	key    string     // news
	old    []byte     // news
	event  ChangeKind // news
	err    error      // the command failed and changed nothing
}

// size is about what a reply costs until it is written.
func (r *reply) size() int {
	n := 2*entryBytes + len(r.value) + len(r.old) + len(r.keys)*entryBytes
	for _, v := range r.values {
		n += len(v)
	}
	return n
}

// state is the store itself: commands in, replies out. It does no I/O, reads no clock and locks
// nothing; its owner does. It keeps the slices it is given and hands the same ones out, so nobody
// may write to them, nor append in place.
type state struct {
	limits  Limits
	changed func(command) // unless nil, hears of every change, before its replies, as a command that repeats it
	data    map[string][]byte
	queues  map[string]*queue
	guests  map[clientID]*guest         // those that wait or watch
	lines   [lineKinds]map[string]*spot // the first in each line
	called  map[clientID]string         // those whose turn it is at a queue, until their next command
	bytes   int                         // what counts towards limits.Memory
	waiting int                         // clients
	watched int                         // pairs of a client and a key
}

// entryBytes is what a key, a value in a queue, or a client's interest in a key counts beside its
// bytes.
const entryBytes = 64

func newState(limits Limits) *state {
	s := &state{limits: limits, data: map[string][]byte{}, queues: map[string]*queue{}, guests: map[clientID]*guest{},
		called: map[clientID]string{}}
	for i := range s.lines {
		s.lines[i] = map[string]*spot{}
	}
	return s
}

// stats is how much a state holds.
type stats struct {
	keys     int // with a value
	queues   int // not empty
	bytes    int // of keys, values and interests, as Limits.Memory counts them
	waiters  int // clients that wait
	watchers int // pairs of a client and a key
}

func (s *state) stats() stats {
	return stats{len(s.data), len(s.queues), s.bytes, s.waiting, s.watched}
}

// value is what a key has now.
func (s *state) value(key string) (value []byte, there bool) {
	value, there = s.data[key]
	return value, there
}

// clear forgets all values and queues. Who waits or watches stays.
func (s *state) clear() {
	clear(s.data)
	clear(s.queues)
}

// snapshot is the shortest way to the state's values and queues from an empty state.
func (s *state) snapshot() iter.Seq[command] {
	return func(yield func(command) bool) {
		for k, v := range s.data {
			if !yield(command{op: opSet, key: k, value: v}) {
				return
			}
		}
		for k, q := range s.queues {
			for _, v := range q.all() {
				if !yield(command{op: opPush, key: k, value: v}) {
					return
				}
			}
		}
	}
}

// apply does what from asks and appends the answer, unless it has to wait, and after it what others
// get to hear.
func (s *state) apply(from clientID, cmd command, out []reply) []reply {
	key, called := s.called[from]
	if !called {
		return s.do(from, cmd, out)
	}
	delete(s.called, from)
	if out = s.do(from, cmd, out); cmd.op == opPop && cmd.key == key {
		return out
	}
	return s.call(key, out)
}

func (s *state) do(from clientID, cmd command, out []reply) []reply {
	answer := reply{to: from, op: cmd.op}
	switch cmd.op {
	case opSet, opCompareSet, opAdd, opAppend:
		return s.write(answer, cmd, out)
	case opMultiSet:
		return s.multiSet(answer, cmd, out)
	case opDelete:
		return s.remove(answer, cmd, out)
	case opPush:
		return s.push(answer, cmd, out)
	case opWait, opFetch, opTake, opReady:
		return s.await(answer, cmd, out)
	case opBarrier, opArrive:
		return s.barrier(answer, cmd, out)
	case opReach:
		return s.reach(answer, cmd, out)
	case opCancelWait:
		s.stopWaiting(from)
	case opWatch:
		answer.err = s.watch(from, cmd.key)
	case opUnwatch:
		s.unwatch(from, cmd.key)
	default:
		s.read(&answer, cmd)
	}
	return append(out, answer)
}

// read answers what changes nothing but, by a pop, a queue, and never waits.
func (s *state) read(answer *reply, cmd command) {
	switch cmd.op {
	case opGet:
		v, there := s.data[cmd.key]
		if !there {
			answer.err = errNoKey
		}
		answer.value = v
	case opMultiGet:
		*answer = s.values(*answer, cmd.keys)
	case opCheck:
		answer.ok = !slices.ContainsFunc(cmd.keys, func(k string) bool { return !s.has(k) })
	case opNumKeys:
		answer.n = int64(len(s.data))
	case opList:
		answer.keys = slices.AppendSeq(make([]string, 0, len(s.data)), maps.Keys(s.data))
	case opLen:
		answer.n = int64(s.queues[cmd.key].len())
	case opPop:
		if answer.n = int64(s.queues[cmd.key].len()); answer.n > 0 {
			answer.value = s.pop(cmd.key)
		}
	default:
		answer.err = fmt.Errorf("%w: unknown command %d", ErrProtocol, cmd.op)
	}
}

// valuesFactor times Limits.Value is the most bytes of one reply with many values: keys may be
// repeated, and what is short to ask for must not be endless to answer.
const valuesFactor = 4

func (s *state) values(answer reply, keys []string) reply {
	answer.ok, answer.values = true, make([][]byte, len(keys))
	total := 0
	for i, k := range keys {
		v, there := s.data[k]
		answer.values[i], answer.ok = v, answer.ok && there
		if total += len(v); total > valuesFactor*s.limits.Value {
			err := fmt.Errorf("%w: the values have more than %d bytes together", ErrTooLarge, valuesFactor*s.limits.Value)
			return reply{to: answer.to, op: answer.op, err: err}
		}
	}
	return answer
}

// has says whether a wait for key ends: there is a value, or something in the queue.
func (s *state) has(key string) bool {
	_, there := s.data[key]
	return there || s.queues[key] != nil
}

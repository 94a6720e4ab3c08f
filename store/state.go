package store

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
)

// op is what a command asks for. wire.go says by which bytes.
type op byte

const (
	opSet op = iota
	opCompareSet
	opGet
	opAdd
	opCheck
	opWait
	opNumKeys
	opWatch
	opDelete
	opAppend
	opMultiGet
	opMultiSet
	opCancelWait
	opPush    // to a queue
	opPop     // from a queue, which may be empty
	opLen     // of a queue
	opList    // all keys
	opBarrier // answered when as many have come as delta says
	opFetch   // opWait and opMultiGet at once, which PyTorch has not
	opTake    // opWait and opPop at once, which PyTorch has not
	opUnwatch // which PyTorch has not
	opNews    // a reply only: of a watched key
)

// clientID names who sent a command and who gets a reply. The shell gives them out and never uses one twice.
type clientID uint64

// command is one request. Which fields matter depends on op.
type command struct {
	op       op
	key      string
	keys     []string // check, wait, multiGet, fetch
	pairs    []Pair   // multiSet
	expected []byte   // compareSet
	value    []byte   // set, append, push; what compareSet stores
	delta    int64    // add; the world's size of a barrier
	turn     bool     // wait: as PyTorch's clients do before a pop, see lineTurn
}

// reply is the answer to a command, of which all have one, or a piece of news. Which fields matter depends on op, which
// is the command's, or opNews. If err is set, the others are not.
type reply struct {
	to     clientID
	op     op
	ok     bool       // check; whether multiGet found all keys
	n      int64      // add, numKeys, delete, len; how many were in the queue before a pop
	value  []byte     // get, compareSet, pop, take; the new value of news
	values [][]byte   // multiGet, where nil means that the key is missing; fetch
	keys   []string   // list, in no order
	key    string     // news
	old    []byte     // news
	event  ChangeKind // news
	err    error      // the command failed and changed nothing
}

// state is the store itself: commands in, replies out. It does no I/O, reads no clock and locks nothing; its owner
// does. It keeps the slices it is given and hands the same ones out, so nobody may write to them, nor append in place.
type state struct {
	limits  Limits
	changed func(command) // unless nil, hears of every change, before its replies, as a command that repeats it
	data    map[string][]byte
	queues  map[string]*queue
	guests  map[clientID]*guest         // those that wait or watch
	lines   [lineKinds]map[string]*spot // the first in each line
	bytes   int                         // what counts towards limits.Memory
	waiting int                         // clients
	watched int                         // pairs of a client and a key
}

// entryBytes is what a key, a value in a queue, or a client's interest in a key counts beside its bytes.
const entryBytes = 64

func newState(limits Limits) *state {
	s := &state{limits: limits, data: map[string][]byte{}, queues: map[string]*queue{}, guests: map[clientID]*guest{}}
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

// apply does what from asks and appends the answer, unless it has to wait, and after it what others get to hear.
func (s *state) apply(from clientID, cmd command, out []reply) []reply {
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
	case opWait, opFetch, opTake:
		return s.await(answer, cmd, out)
	case opBarrier:
		return s.barrier(answer, cmd, out)
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

// valuesFactor times Limits.Value is the most bytes of one reply with many values: keys may be repeated, and what is
// short to ask for must not be endless to answer.
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

// write does the commands that give one key a new value.
func (s *state) write(answer reply, cmd command, out []reply) []reply {
	old, there := s.data[cmd.key]
	switch cmd.op {
	case opSet:
		return s.change(answer, cmd, slices.Clip(cmd.value), out)
	case opCompareSet:
		if bytes.Equal(old, cmd.expected) {
			answer.value = cmd.value
			return s.change(answer, cmd, slices.Clip(cmd.value), out)
		}
		if answer.value = old; !there {
			answer.value = cmd.expected
		}
	case opAdd:
		if answer.n, answer.err = s.number(cmd.key); answer.err == nil {
			answer.n += cmd.delta
			return s.change(answer, cmd, strconv.AppendInt(nil, answer.n, 10), out)
		}
	case opAppend:
		// What is in front of the old value's end is never written again, so its readers are not disturbed. Only values
		// that were made here have room behind it.
		n := len(old) + len(cmd.value)
		if n > s.limits.Value {
			answer.err = fmt.Errorf("%w: the value would have %d bytes, at most %d allowed", ErrTooLarge, n, s.limits.Value)
		} else if answer.err = s.room(s.growth(cmd.key, n)); answer.err == nil {
			return s.change(answer, cmd, append(old, cmd.value...), out)
		}
	}
	return append(out, answer)
}

// change gives a key a value if there is room for it.
func (s *state) change(answer reply, cmd command, value []byte, out []reply) []reply {
	if err := s.room(s.growth(cmd.key, len(value))); err != nil {
		return append(out, reply{to: answer.to, op: answer.op, err: err})
	}
	if cmd.op == opAppend {
		s.note(cmd)
	} else {
		s.note(command{op: opSet, key: cmd.key, value: value})
	}
	created, out := s.put(cmd.key, value, append(out, answer))
	if created {
		out = s.arrived(cmd.key, out)
	}
	return out
}

func (s *state) multiSet(answer reply, cmd command, out []reply) []reply {
	if answer.err = s.room(s.growthOfAll(cmd.pairs)); answer.err != nil {
		return append(out, answer)
	}
	s.note(command{op: opMultiSet, pairs: cmd.pairs})
	out = append(out, answer)
	var fresh []string
	for _, p := range cmd.pairs {
		var created bool
		if created, out = s.put(p.Key, slices.Clip(p.Value), out); created {
			fresh = append(fresh, p.Key)
		}
	}
	for _, k := range fresh { // now only, as a fetch must see all or nothing
		out = s.arrived(k, out)
	}
	return out
}

// put stores a value, tells those who watch the key, and says whether there was none.
func (s *state) put(key string, value []byte, out []reply) (created bool, _ []reply) {
	old, there := s.data[key]
	if value == nil {
		value = []byte{} // nil would be no value
	}
	s.bytes += s.growth(key, len(value))
	s.data[key] = value
	if there {
		return false, s.news(key, Updated, old, value, out)
	}
	return true, s.news(key, Created, nil, value, out)
}

func (s *state) remove(answer reply, cmd command, out []reply) []reply {
	old, there := s.data[cmd.key]
	if !there {
		return append(out, answer)
	}
	answer.n = 1
	s.note(command{op: opDelete, key: cmd.key})
	s.bytes -= len(cmd.key) + len(old) + entryBytes
	delete(s.data, cmd.key)
	s.gone(cmd.key)
	return s.news(cmd.key, Deleted, old, nil, append(out, answer))
}

func (s *state) note(cmd command) {
	if s.changed != nil {
		s.changed(cmd)
	}
}

// number reads the number under key; a missing key is 0.
func (s *state) number(key string) (int64, error) {
	text, there := s.data[key]
	if !there {
		return 0, nil
	}
	return parseDecimal(text)
}

// growth is by how much more a value of n bytes under key counts than what is there now.
func (s *state) growth(key string, n int) int {
	if old, there := s.data[key]; there {
		return n - len(old)
	}
	return len(key) + n + entryBytes
}

func (s *state) growthOfAll(pairs []Pair) int {
	most := 0
	for _, p := range pairs {
		most += len(p.Key) + len(p.Value) + entryBytes
	}
	if s.room(most) == nil {
		return most
	}
	last := make(map[string]int, len(pairs))
	for _, p := range pairs {
		last[p.Key] = len(p.Value)
	}
	total := 0
	for k, n := range last {
		total += s.growth(k, n)
	}
	return total
}

// room says whether so many bytes more are allowed. Who gives some back is always welcome.
func (s *state) room(more int) error {
	if more > 0 && more > s.limits.Memory-s.bytes {
		return fmt.Errorf("%w: it holds %d bytes and is asked for %d more, at most %d allowed", ErrFull, s.bytes, more, s.limits.Memory)
	}
	return nil
}

// longestNumber is where the search for a number ends: it must not take long to find none in a long value.
const longestNumber = 4 << 10

// parseDecimal reads a number as C++'s stoll does: blanks before it and anything after it do not matter.
func parseDecimal(text []byte) (int64, error) {
	s := bytes.TrimLeft(text[:min(len(text), longestNumber)], " \t\n\v\f\r")
	end := 0
	if end < len(s) && (s[0] == '-' || s[0] == '+') {
		end++
	}
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(string(s[:end]), 10, 64)
	if err != nil || end == len(s) && len(text) > longestNumber {
		return 0, fmt.Errorf("%w: %q, expected a decimal number between %d and %d", ErrNotANumber,
			clip(string(text[:min(len(text), longestNumber)])), int64(math.MinInt64), int64(math.MaxInt64))
	}
	return n, nil
}

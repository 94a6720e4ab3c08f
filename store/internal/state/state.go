package state

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/weft-project/weft/store/internal/kv"
)

// ClientID names who sent a command and who gets a reply. The shell gives them out and never uses
// one twice.
type ClientID uint64

// Command is one request. Which fields matter depends on Op.
type Command struct {
	Op       Op
	Key      string
	Keys     []string  // check, wait, multiGet, fetch
	Pairs    []kv.Pair // multiSet
	Expected []byte    // compareSet
	Value    []byte    // set, append, push; what compareSet stores
	Delta    int64     // add; the world's size of a barrier, arrive, reach
	Turn     bool      // wait: as PyTorch's clients do before a pop, see lineTurn
}

// Names is the keys of a command.
func (cmd Command) Names() []string {
	switch cmd.Op {
	case OpNumKeys, OpList, OpCancelWait:
		return nil
	case OpCheck, OpWait, OpMultiGet, OpFetch:
		return cmd.Keys
	case OpMultiSet:
		keys := make([]string, len(cmd.Pairs))
		for i, p := range cmd.Pairs {
			keys[i] = p.Key
		}
		return keys
	}
	return []string{cmd.Key}
}

// CheckValues refuses values that are too long. The two of a CompareSet count apart.
func (cmd Command) CheckValues(s kv.Settings) error {
	for _, v := range [][]byte{cmd.Expected, cmd.Value} {
		if err := s.CheckValues(v); err != nil {
			return err
		}
	}
	values := make([][]byte, len(cmd.Pairs))
	for i, p := range cmd.Pairs {
		values[i] = p.Value
	}
	return s.CheckValues(values...)
}

// Reply is the answer to a command, of which all have one, or a piece of news. Which fields matter
// depends on Op, which is the command's, or OpNews. If Err is set, the others are not.
type Reply struct {
	To     ClientID
	Op     Op
	OK     bool          // check; whether multiGet found all keys
	N      int64         // add, arrive, numKeys, delete, len; how many were in the queue before a pop
	Value  []byte        // get, compareSet, pop, take; the new value of news
	Values [][]byte      // multiGet, where nil means that the key is missing; fetch
	Keys   []string      // list, in no order
	Key    string        // news
	Old    []byte        // news
	Event  kv.ChangeKind // news
	Err    error         // the command failed and changed nothing
}

// Size is about what a reply costs until it is written.
func (r *Reply) Size() int {
	n := 2*EntryBytes + len(r.Value) + len(r.Old) + len(r.Keys)*EntryBytes
	for _, v := range r.Values {
		n += len(v)
	}
	return n
}

// State is the store itself: commands in, replies out. It does no I/O, reads no clock and locks
// nothing; its owner does. It keeps the slices it is given and hands the same ones out, so nobody
// may write to them, nor append in place.
type State struct {
	Limits  kv.Limits
	Changed func(Command) // unless nil, hears of every change, before its replies, as a command that repeats it
	data    map[string][]byte
	queues  map[string]*queue
	guests  map[ClientID]*guest         // those that wait or watch
	lines   [lineKinds]map[string]*spot // the first in each line
	called  map[ClientID]string         // those whose turn it is at a queue, until their next command
	bytes   int                         // what counts towards Limits.Memory
	waiting int                         // clients
	watched int                         // pairs of a client and a key
}

// EntryBytes is what a key, a value in a queue, or a client's interest in a key counts beside its
// bytes.
const EntryBytes = 64

// New makes an empty state.
func New(limits kv.Limits) *State {
	s := &State{Limits: limits, data: map[string][]byte{}, queues: map[string]*queue{}, guests: map[ClientID]*guest{},
		called: map[ClientID]string{}}
	for i := range s.lines {
		s.lines[i] = map[string]*spot{}
	}
	return s
}

// Stats is how much a state holds.
type Stats struct {
	Keys     int // with a value
	Queues   int // not empty
	Bytes    int // of keys, values and interests, as Limits.Memory counts them
	Waiters  int // clients that wait
	Watchers int // pairs of a client and a key
}

// Stats is how much it holds now.
func (s *State) Stats() Stats {
	return Stats{len(s.data), len(s.queues), s.bytes, s.waiting, s.watched}
}

// Value is what a key has now.
func (s *State) Value(key string) (value []byte, there bool) {
	value, there = s.data[key]
	return value, there
}

// Clear forgets all values and queues. Who waits or watches stays.
func (s *State) Clear() {
	clear(s.data)
	clear(s.queues)
}

// Snapshot is the shortest way to the state's values and queues from an empty state.
func (s *State) Snapshot() iter.Seq[Command] {
	return func(yield func(Command) bool) {
		for k, v := range s.data {
			if !yield(Command{Op: OpSet, Key: k, Value: v}) {
				return
			}
		}
		for k, q := range s.queues {
			for _, v := range q.all() {
				if !yield(Command{Op: OpPush, Key: k, Value: v}) {
					return
				}
			}
		}
	}
}

// Apply does what from asks and appends the answer, unless it has to wait, and after it what others
// get to hear.
func (s *State) Apply(from ClientID, cmd Command, out []Reply) []Reply {
	key, called := s.called[from]
	if !called {
		return s.do(from, cmd, out)
	}
	delete(s.called, from)
	if out = s.do(from, cmd, out); cmd.Op == OpPop && cmd.Key == key {
		return out
	}
	return s.call(key, out)
}

func (s *State) do(from ClientID, cmd Command, out []Reply) []Reply {
	answer := Reply{To: from, Op: cmd.Op}
	switch cmd.Op {
	case OpSet, OpCompareSet, OpAdd, OpAppend:
		return s.write(answer, cmd, out)
	case OpMultiSet:
		return s.multiSet(answer, cmd, out)
	case OpDelete:
		return s.remove(answer, cmd, out)
	case OpPush:
		return s.push(answer, cmd, out)
	case OpWait, OpFetch, OpTake, OpReady:
		return s.await(answer, cmd, out)
	case OpBarrier, OpArrive:
		return s.barrier(answer, cmd, out)
	case OpReach:
		return s.reach(answer, cmd, out)
	case OpCancelWait:
		s.stopWaiting(from)
	case OpWatch:
		answer.Err = s.watch(from, cmd.Key)
	case OpUnwatch:
		s.unwatch(from, cmd.Key)
	default:
		s.read(&answer, cmd)
	}
	return append(out, answer)
}

// read answers what changes nothing but, by a pop, a queue, and never waits.
func (s *State) read(answer *Reply, cmd Command) {
	switch cmd.Op {
	case OpGet:
		v, there := s.data[cmd.Key]
		if !there {
			answer.Err = kv.ErrNoKey
		}
		answer.Value = v
	case OpMultiGet:
		*answer = s.values(*answer, cmd.Keys)
	case OpCheck:
		answer.OK = !slices.ContainsFunc(cmd.Keys, func(k string) bool { return !s.Has(k) })
	case OpNumKeys:
		answer.N = int64(len(s.data))
	case OpList:
		answer.Keys = slices.AppendSeq(make([]string, 0, len(s.data)), maps.Keys(s.data))
	case OpLen:
		answer.N = int64(s.queues[cmd.Key].len())
	case OpPop:
		if answer.N = int64(s.queues[cmd.Key].len()); answer.N > 0 {
			answer.Value = s.pop(cmd.Key)
		}
	default:
		answer.Err = fmt.Errorf("%w: unknown command %d", kv.ErrProtocol, cmd.Op)
	}
}

// valuesFactor times Limits.Value is the most bytes of one reply with many values: keys may be
// repeated, and what is short to ask for must not be endless to answer.
const valuesFactor = 4

func (s *State) values(answer Reply, keys []string) Reply {
	answer.OK, answer.Values = true, make([][]byte, len(keys))
	total := 0
	for i, k := range keys {
		v, there := s.data[k]
		answer.Values[i], answer.OK = v, answer.OK && there
		if total += len(v); total > valuesFactor*s.Limits.Value {
			err := fmt.Errorf("%w: the values have more than %d bytes together", kv.ErrTooLarge, valuesFactor*s.Limits.Value)
			return Reply{To: answer.To, Op: answer.Op, Err: err}
		}
	}
	return answer
}

// Has says whether a wait for key ends: there is a value, or something in the queue.
func (s *State) Has(key string) bool {
	_, there := s.data[key]
	return there || s.queues[key] != nil
}

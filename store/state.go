package store

import (
	"bytes"
	"fmt"
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
}

// reply is one answer or one piece of news. Which fields matter depends on op, which is the command's, or opNews.
type reply struct {
	to     clientID
	op     op
	ok     bool       // check
	n      int64      // add, numKeys, delete, len; how many were in the queue before a pop
	value  []byte     // get, compareSet, pop, take; the new value of news
	values [][]byte   // multiGet, fetch
	keys   []string   // list
	key    string     // news
	old    []byte     // news
	event  ChangeKind // news
	err    error      // the command failed and changed nothing
}

// state is the store itself: commands in, replies out. It does no I/O, reads no clock and locks nothing; its owner
// does. It keeps the slices it is given and hands the same ones out, so nobody may write to them.
type state struct {
	limits   Limits
	data     map[string][]byte
	missing  map[clientID]map[string]struct{} // what each waiting client waits for
	waiters  map[string]map[clientID]struct{} // the same by key
	watching map[clientID]map[string]struct{}
	watchers map[string]map[clientID]struct{} // the same by key
}

func newState(limits Limits) *state {
	return &state{
		limits:   limits,
		data:     map[string][]byte{},
		missing:  map[clientID]map[string]struct{}{},
		waiters:  map[string]map[clientID]struct{}{},
		watching: map[clientID]map[string]struct{}{},
		watchers: map[string]map[clientID]struct{}{},
	}
}

// apply does what from asks and appends the answer, if any, and what others get to hear of it.
func (s *state) apply(from clientID, cmd command, out []reply) []reply {
	answer := reply{to: from, op: cmd.op}
	old, there := s.data[cmd.key]
	switch cmd.op {
	case opSet:
		return s.store(cmd.key, cmd.value, out)
	case opCompareSet:
		if !bytes.Equal(old, cmd.expected) {
			answer.value = old
			if !there {
				answer.value = cmd.expected
			}
			break
		}
		answer.value = cmd.value
		return s.store(cmd.key, cmd.value, append(out, answer))
	case opGet:
		if !there {
			answer.err = errNoKey
		}
		answer.value = old
	case opAdd:
		if there {
			answer.n, answer.err = parseDecimal(old)
		}
		if answer.err == nil {
			answer.n += cmd.delta
			return s.store(cmd.key, strconv.AppendInt(nil, answer.n, 10), append(out, answer))
		}
	case opCheck:
		answer.ok = !slices.ContainsFunc(cmd.keys, func(k string) bool { return !s.has(k) })
	case opWait:
		if s.await(from, cmd.keys) {
			return out
		}
	case opNumKeys:
		answer.n = int64(len(s.data))
	case opWatch:
		answer.err = s.watch(from, cmd.key)
	case opDelete:
		if there {
			answer.n = 1
			delete(s.data, cmd.key)
			out = s.push(cmd.key, Deleted, old, nil, out)
		}
	default:
		answer.err = fmt.Errorf("%w: unknown command %d", ErrProtocol, cmd.op)
	}
	return append(out, answer)
}

// drop forgets what a client waits for and watches.
func (s *state) drop(id clientID) {
	s.stopWaiting(id)
	for key := range s.watching[id] {
		unpair(s.watchers, key, id)
	}
	delete(s.watching, id)
}

func (s *state) stopWaiting(id clientID) {
	for key := range s.missing[id] {
		unpair(s.waiters, key, id)
	}
	delete(s.missing, id)
}

func (s *state) has(key string) bool {
	_, there := s.data[key]
	return there
}

// store changes a value and tells those who wait for it or watch it.
func (s *state) store(key string, value []byte, out []reply) []reply {
	old, there := s.data[key]
	e := Created
	if there {
		e = Updated
	}
	s.data[key] = value
	for _, id := range sorted(s.waiters[key]) {
		if delete(s.missing[id], key); len(s.missing[id]) == 0 {
			delete(s.missing, id)
			out = append(out, reply{to: id, op: opWait})
		}
	}
	delete(s.waiters, key)
	return s.push(key, e, old, value, out)
}

func (s *state) push(key string, e ChangeKind, old, value []byte, out []reply) []reply {
	for _, id := range sorted(s.watchers[key]) {
		out = append(out, reply{to: id, op: opNews, event: e, key: key, old: old, value: value})
	}
	return out
}

// await says whether id has to wait for any of keys. A client has one request in flight, so a second wait means that
// it has given up the first, which is forgotten.
func (s *state) await(id clientID, keys []string) bool {
	s.stopWaiting(id)
	for _, key := range keys {
		if !s.has(key) {
			pair(s.missing, id, key)
			pair(s.waiters, key, id)
		}
	}
	return len(s.missing[id]) > 0
}

func (s *state) watch(id clientID, key string) error {
	pair(s.watching, id, key)
	pair(s.watchers, key, id)
	if n := len(s.watching[id]); n > s.limits.Keys {
		return fmt.Errorf("%w: %d watched keys, at most %d allowed", ErrTooLarge, n, s.limits.Keys)
	}
	return nil
}

func pair[A, B comparable](m map[A]map[B]struct{}, a A, b B) {
	if m[a] == nil {
		m[a] = map[B]struct{}{}
	}
	m[a][b] = struct{}{}
}

func unpair[A, B comparable](m map[A]map[B]struct{}, a A, b B) {
	if delete(m[a], b); len(m[a]) == 0 {
		delete(m, a)
	}
}

// sorted makes the order of replies a function of the commands alone.
func sorted(ids map[clientID]struct{}) []clientID {
	if len(ids) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(ids))
}

// parseDecimal reads a number as C++'s stoll does: blanks before it and anything after it do not matter.
func parseDecimal(text []byte) (int64, error) {
	s := bytes.TrimLeft(text, " \t\n\v\f\r")
	end := 0
	if end < len(s) && (s[0] == '-' || s[0] == '+') {
		end++
	}
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(string(s[:end]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %q, expected a decimal number between %d and %d", ErrNotANumber,
			clip(string(text)), int64(math.MinInt64), int64(math.MaxInt64))
	}
	return n, nil
}

package store

import (
	"fmt"
	"slices"
	"strconv"
)

// write does the commands that give one key a new value.
func (s *state) write(answer reply, cmd command, out []reply) []reply {
	old, there := s.data[cmd.key]
	switch cmd.op {
	case opSet:
		return s.change(answer, cmd, slices.Clip(cmd.value), out)
	case opCompareSet:
		var stores bool
		if answer.value, stores = Compared(old, there, cmd.expected, cmd.value); stores {
			return s.change(answer, cmd, slices.Clip(cmd.value), out)
		}
	case opAdd:
		if answer.n, answer.err = Sum(old, there, cmd.delta); answer.err == nil {
			return s.change(answer, cmd, strconv.AppendInt(nil, answer.n, 10), out)
		}
	case opAppend:
		// What is in front of the old value's end is never written again, so its readers are not
		// disturbed. Only values that were made here have room behind it.
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

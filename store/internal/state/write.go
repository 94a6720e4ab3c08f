package state

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/weft-project/weft/store/internal/kv"
)

// write does the commands that give one key a new value.
func (s *State) write(answer Reply, cmd Command, out []Reply) []Reply {
	old, there := s.data[cmd.Key]
	switch cmd.Op {
	case OpSet:
		return s.change(answer, cmd, slices.Clip(cmd.Value), out)
	case OpCompareSet:
		var stores bool
		if answer.Value, stores = kv.Compared(old, there, cmd.Expected, cmd.Value); stores {
			return s.change(answer, cmd, slices.Clip(cmd.Value), out)
		}
	case OpAdd:
		if answer.N, answer.Err = kv.Sum(old, there, cmd.Delta); answer.Err == nil {
			return s.change(answer, cmd, strconv.AppendInt(nil, answer.N, 10), out)
		}
	case OpAppend:
		// What is in front of the old value's end is never written again, so its readers are not
		// disturbed. Only values that were made here have room behind it.
		n := len(old) + len(cmd.Value)
		if n > s.Limits.Value {
			answer.Err = fmt.Errorf("%w: the value would have %d bytes, at most %d allowed", kv.ErrTooLarge, n, s.Limits.Value)
		} else if answer.Err = s.room(s.growth(cmd.Key, n)); answer.Err == nil {
			return s.change(answer, cmd, append(old, cmd.Value...), out)
		}
	}
	return append(out, answer)
}

// change gives a key a value if there is room for it.
func (s *State) change(answer Reply, cmd Command, value []byte, out []Reply) []Reply {
	if err := s.room(s.growth(cmd.Key, len(value))); err != nil {
		return append(out, Reply{To: answer.To, Op: answer.Op, Err: err})
	}
	if cmd.Op == OpAppend {
		s.note(cmd)
	} else {
		s.note(Command{Op: OpSet, Key: cmd.Key, Value: value})
	}
	created, out := s.put(cmd.Key, value, append(out, answer))
	if created {
		out = s.arrived(cmd.Key, out)
	}
	return out
}

func (s *State) multiSet(answer Reply, cmd Command, out []Reply) []Reply {
	if answer.Err = s.room(s.growthOfAll(cmd.Pairs)); answer.Err != nil {
		return append(out, answer)
	}
	s.note(Command{Op: OpMultiSet, Pairs: cmd.Pairs})
	out = append(out, answer)
	var fresh []string
	for _, p := range cmd.Pairs {
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
func (s *State) put(key string, value []byte, out []Reply) (created bool, _ []Reply) {
	old, there := s.data[key]
	if value == nil {
		value = []byte{} // nil would be no value
	}
	s.bytes += s.growth(key, len(value))
	s.data[key] = value
	if there {
		return false, s.news(key, kv.Updated, old, value, out)
	}
	return true, s.news(key, kv.Created, nil, value, out)
}

func (s *State) remove(answer Reply, cmd Command, out []Reply) []Reply {
	old, there := s.data[cmd.Key]
	if !there {
		return append(out, answer)
	}
	answer.N = 1
	s.note(Command{Op: OpDelete, Key: cmd.Key})
	s.bytes -= len(cmd.Key) + len(old) + EntryBytes
	delete(s.data, cmd.Key)
	s.gone(cmd.Key)
	return s.news(cmd.Key, kv.Deleted, old, nil, append(out, answer))
}

func (s *State) note(cmd Command) {
	if s.Changed != nil {
		s.Changed(cmd)
	}
}

// growth is by how much more a value of n bytes under key counts than what is there now.
func (s *State) growth(key string, n int) int {
	if old, there := s.data[key]; there {
		return n - len(old)
	}
	return len(key) + n + EntryBytes
}

func (s *State) growthOfAll(pairs []kv.Pair) int {
	most := 0
	for _, p := range pairs {
		most += len(p.Key) + len(p.Value) + EntryBytes
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
func (s *State) room(more int) error {
	if more > 0 && more > s.Limits.Memory-s.bytes {
		return fmt.Errorf("%w: it holds %d bytes and is asked for %d more, at most %d allowed", kv.ErrFull, s.bytes, more, s.Limits.Memory)
	}
	return nil
}

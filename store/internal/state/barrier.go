package state

import (
	"strconv"

	"github.com/weft-project/weft/store/internal/kv"
)

// barrier counts one more arrival and lets go whom it completes; a client that does not only arrive
// waits for that. The count is stored as Add would, so it stays.
func (s *State) barrier(answer Reply, cmd Command, out []Reply) []Reply {
	s.stopWaiting(answer.To)
	old, there := s.data[cmd.Key]
	if answer.N, answer.Err = kv.Sum(old, there, 1); answer.Err != nil {
		return append(out, answer)
	}
	n, at := answer.N, atCount(cmd.Key, cmd.Delta)
	stays := cmd.Op == OpBarrier && n < cmd.Delta
	count := strconv.AppendInt(nil, n, 10)
	more := s.growth(cmd.Key, len(count))
	if stays {
		more += interestBytes(at)
	}
	if answer.Err = s.room(more); answer.Err != nil {
		return append(out, answer)
	}
	before := len(out)
	out = s.change(answer, cmd, count, out)
	if stays {
		out = append(out[:before], out[before+1:]...) // not yet
		s.enqueueWaiter(answer, lineBarrier, []string{at}, 1)
	}
	if n >= cmd.Delta {
		out = s.serve(lineBarrier, at, all, out)
	}
	return s.serve(lineBarrier, atCount(cmd.Key, n), all, out)
}

// reach answers when as many have arrived as cmd says. It changes nothing, so who has arrived may
// ask again.
func (s *State) reach(answer Reply, cmd Command, out []Reply) []Reply {
	s.stopWaiting(answer.To)
	old, there := s.data[cmd.Key]
	n, err := kv.Sum(old, there, 0)
	if answer.Err = err; err != nil || n >= cmd.Delta {
		return append(out, answer)
	}
	at := []string{atCount(cmd.Key, cmd.Delta)}
	if answer.Err = s.roomToWait(at); answer.Err != nil {
		return append(out, answer)
	}
	s.enqueueWaiter(answer, lineBarrier, at, 1)
	return out
}

// atCount is where those stand who wait until n have come to the barrier key. No two of these are
// equal.
func atCount(key string, n int64) string { return strconv.FormatInt(n, 10) + " " + key }

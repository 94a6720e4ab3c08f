package store

import "strconv"

// barrier counts one more arrival and lets go whom it completes; a client that does not only arrive
// waits for that. The count is stored as Add would, so it stays.
func (s *state) barrier(answer reply, cmd command, out []reply) []reply {
	s.stopWaiting(answer.to)
	old, there := s.data[cmd.key]
	if answer.n, answer.err = Sum(old, there, 1); answer.err != nil {
		return append(out, answer)
	}
	n, at := answer.n, atCount(cmd.key, cmd.delta)
	stays := cmd.op == opBarrier && n < cmd.delta
	count := strconv.AppendInt(nil, n, 10)
	more := s.growth(cmd.key, len(count))
	if stays {
		more += interestBytes(at)
	}
	if answer.err = s.room(more); answer.err != nil {
		return append(out, answer)
	}
	before := len(out)
	out = s.change(answer, cmd, count, out)
	if stays {
		out = append(out[:before], out[before+1:]...) // not yet
		s.wait(answer, lineBarrier, []string{at}, 1)
	}
	if n >= cmd.delta {
		out = s.serve(lineBarrier, at, all, out)
	}
	return s.serve(lineBarrier, atCount(cmd.key, n), all, out)
}

// reach answers when as many have arrived as cmd says. It changes nothing, so who has arrived may
// ask again.
func (s *state) reach(answer reply, cmd command, out []reply) []reply {
	s.stopWaiting(answer.to)
	old, there := s.data[cmd.key]
	n, err := Sum(old, there, 0)
	if answer.err = err; err != nil || n >= cmd.delta {
		return append(out, answer)
	}
	at := []string{atCount(cmd.key, cmd.delta)}
	if answer.err = s.roomToWait(at); answer.err != nil {
		return append(out, answer)
	}
	s.wait(answer, lineBarrier, at, 1)
	return out
}

// atCount is where those stand who wait until n have come to the barrier key. No two of these are
// equal.
func atCount(key string, n int64) string { return strconv.FormatInt(n, 10) + " " + key }

package store

// left is how much a state keeps for clients that wait, watch or are called.
func left(s *state) int {
	n := len(s.guests) + len(s.called)
	for _, line := range s.lines {
		n += len(line)
	}
	return n
}

// calledIn is how many clients are called to a queue.
func calledIn(s *state) int { return len(s.called) }

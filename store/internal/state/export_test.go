package state

// Left is how much a state keeps for clients that wait, watch or are called.
func Left(s *State) int {
	n := len(s.guests) + len(s.called)
	for _, line := range s.lines {
		n += len(line)
	}
	return n
}

// CalledIn is how many clients are called to a queue.
func CalledIn(s *State) int { return len(s.called) }

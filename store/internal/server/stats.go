package server

import "github.com/weft-project/weft/store/internal/state"

// Stats is what a server counts, guests and what they have included. Those without "now" only
// grow.
type Stats struct {
	Clients  int               // connected now
	Accepted uint64            // connections, the refused ones not
	Refused  uint64            // connections over MaxClients, or of another user
	Evicted  uint64            // connections closed to make room for others, as they had shown nothing
	Broken   uint64            // connections closed because the client broke a rule
	Commands map[string]uint64 // by name: "set", "compare_set", "get", …; those that never came are not there
	BytesIn  uint64            // of commands and greetings, without what TLS adds
	BytesOut uint64
	Waiters  int   // clients that wait now: for keys, a queue, a barrier
	Watchers int   // pairs of a client and a key that it watches now
	Keys     int   // with a value now, the protocol's included
	Queues   int   // not empty now
	Bytes    int   // of keys and values now, as Limits.Memory counts them
	Journal  int64 // bytes in the file of the journal now
}

// counters are guarded by Server.mu.
type counters struct {
	accepted, refused, evicted, broken uint64
	commands                           [state.OpNews]uint64
}

// Stats is how the server is doing.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, guests, n := s.members.state.Stats(), s.guests.state.Stats(), s.counters
	stats := Stats{
		Clients: len(s.peers), Accepted: n.accepted, Refused: n.refused, Evicted: n.evicted, Broken: n.broken, Commands: map[string]uint64{},
		BytesIn: s.in.Load(), BytesOut: s.out.Load(),
		Waiters: now.Waiters + guests.Waiters, Watchers: now.Watchers + guests.Watchers,
		Keys: now.Keys + guests.Keys, Queues: now.Queues + guests.Queues, Bytes: now.Bytes + guests.Bytes,
	}
	if s.keeper != nil {
		stats.Journal = s.keeper.Size()
	}
	for o, count := range n.commands {
		if count > 0 {
			stats.Commands[state.Op(o).String()] = count
		}
	}
	return stats
}

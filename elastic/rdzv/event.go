package rdzv

import "time"

// EventKind is what a node says, or that time has passed.
type EventKind int

// The events.
const (
	Tick      EventKind = iota // time has passed
	Join                       // Node wants to take part
	KeepAlive                  // ID is there
	Leave                      // ID goes, and says Why; nobody else has to
	Fail                       // a worker of ID has failed, Why; may it be restarted?
	Done                       // the workers of ID have ended well, in Round
	Close                      // ID ends the rendezvous for all
)

// Event is one thing that happened. Which fields matter depends on Kind.
type Event struct {
	Kind   EventKind
	Node   Node   // Join
	Config Config // Join: as the node was told it, which must be the job's
	Past   Past   // Join: what the node brings
	ID     string // all others but Tick
	Why    string // Leave, Fail, Close
	Rank   int    // Fail: the worker's rank in the world
	Round  int    // Fail, Done: the latest that had started on the node
	Since  int    // Fail: if the worker may have given up because another failed, 1 + the restarts of the job when it was started; else 0
	Nth    int    // Fail: how many of its workers have failed with this one, so that it counts once however often it is told
}

// ActionKind is what is to be told to a node.
type ActionKind int

// The actions.
const (
	Place    ActionKind = iota // it takes part: Placement, and Why the round has formed, as far as is known
	Wait                       // it waits for the next round
	Spare                      // it is redundant
	Refuse                     // it does not take part: Err
	Restart                    // it may restart the worker that failed, in its place
	Lost                       // nothing to tell it: it is lost, or has left. Why
	Finished                   // the rendezvous is closed: Why, Placement.Restarts, and Err if it has failed
)

// Action is one thing to tell one node.
type Action struct {
	Kind      ActionKind
	ID        string
	Placement Placement
	Nth       int // Restart: of the failure that it answers
	Why       string
	Err       error
}

// Placement is a node's place in a round, and its workers'.
type Placement struct {
	Round, Epoch int
	Rank, Nodes  int    // of the node: GROUP_RANK, GROUP_WORLD_SIZE
	First, World int    // rank of its first worker, and the number of workers
	RoleFirst    int    // rank of its first worker in its role
	RoleWorld    int    // workers of its role
	Slots        int    // its own workers
	MasterAddr   string // address of the node with rank 0
	Stayed       bool   // the node was in the round before
	Source       int    // the lowest rank of a node that was, -1 if none was: who has what newcomers need
	SourceFirst  int    // rank of that node's first worker
	Restart      bool   // its workers are to be restarted; else those that run go on
	Restarts     int    // of the job so far
	MaxRestarts  int
}

// next is when a Tick may next decide something if nothing else happens; zero if never.
func (s *State) next() time.Time {
	if s.phase == Closed || len(s.members) == 0 {
		return time.Time{}
	}
	next := s.quiet
	if !s.deadline.IsZero() && s.deadline.Before(next) && (s.phase == Complete || s.awaited == 0) {
		next = s.deadline
	}
	if t := s.tooFew.Add(1); !s.tooFew.IsZero() && t.Before(next) {
		next = t
	}
	return next
}

package agent

import "slices"

// stage is where an agent is in its life. What asks it to end does so in each of them: first a
// signal, which ends the context of Run, and then another one, which closes Spec.Abort. Whatever
// the agent waits for, it waits for these, too.
//
//	stage        what the agent does                             after the first one          after the second one
//	meeting      looks for the store in which the nodes meet     Run returns                  -
//	waiting      has no place in the round, or is redundant      settling                     -
//	running      looks after its workers                         stopping                     killing
//	failing      asks for leave to start a failed worker again   stopping or settling (*)     killing
//	finished     waits for the workers of other nodes            settling                     -
//	regrouping   stops the workers of a round that is over,      stopping or settling (*)     killing
//	             and waits until the next round may start
//	stopping     waits for workers that have got SIGTERM         the same, for Grace at most  killing
//	killing      waits for workers that have got SIGKILL         the same                     the same
//	settling     waits until the workers' output is read         for Drain at most            for Drain at most
//	parting      leaves the rendezvous                           for hurry at most            for parting/10 at most
//
// (*) stopping where workers run, settling where none does.
//
// Without a signal settling ends when the output is read, and parting after as many seconds as its
// constant says.
//
// A worker that cannot be started has failed before the agent waits for anything again: there is no
// stage in which it waits for one that is not there.
type stage int

const (
	stageMeeting stage = iota
	stageWaiting
	stageRunning
	stageFailing
	stageFinished
	stageRegrouping
	stageStopping
	stageKilling
	stageSettling
	stageParting
	stages // how many there are
)

// stage is the node's, between the agent's meeting and its settling.
func (n *node) stage() stage {
	switch {
	case n.ending && n.killed:
		return stageKilling
	case n.ending:
		return stageStopping
	case n.place == nil:
		return stageWaiting
	case n.next != nil || len(n.stale(kill)) > 0:
		return stageRegrouping
	case n.has(broken):
		return stageFailing
	case n.left > 0:
		return stageRunning
	case n.has(idle): // its round is over, and it has no place in the next one yet
		return stageWaiting
	}
	return stageFinished
}

func (n *node) has(p phase) bool {
	return slices.ContainsFunc(n.workers, func(s slot) bool { return s.phase == p })
}

// setStage notes where the agent is, for tests.
func (a *agent) setStage(s stage) {
	if a.spec.entered != nil {
		a.spec.entered(s)
	}
}

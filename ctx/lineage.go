package ctx

import (
	"fmt"
	"slices"
)

// Ancestor is a message with the messages that its tensors were computed from. A worker that sends
// a message adds those of its ancestors that the receiver may not know: this is how SMART mode's
// root knows who takes part before the first gradient leaves.
type Ancestor struct {
	ID      MessageID
	Parents []MessageID
}

// Lineage is what a message says of its past.
type Lineage struct {
	Parents   []MessageID // whose tensors its own were computed from, on the worker that sends it
	Ancestors []Ancestor  // of the parents and so on, without what the receiver knows
}

// maxLineage bounds the messages that a pass knows of on one worker, and those of one plan.
const maxLineage = 1 << 20

// lineage is what one worker knows of the messages of a pass: for each, its parents. Who knows a
// message knows all its ancestors.
type lineage struct {
	of   map[MessageID][]MessageID
	told map[MessageID][]WorkerID // who told this worker, and hence knows
}

// learn takes the past of a message that a worker sent.
func (l *lineage) learn(from WorkerID, id MessageID, past Lineage) error {
	if len(l.of)+len(past.Ancestors) >= maxLineage {
		return fmt.Errorf("%w: a pass of more than %d messages", ErrProtocol, maxLineage)
	}
	for _, a := range past.Ancestors {
		l.add(a.ID, a.Parents)
		if a.ID.Creator() != from && !slices.Contains(l.told[a.ID], from) {
			if l.told == nil {
				l.told = map[MessageID][]WorkerID{}
			}
			l.told[a.ID] = append(l.told[a.ID], from)
		}
	}
	l.add(id, past.Parents)
	return nil
}

// add keeps what was said first: a message does not change its parents.
func (l *lineage) add(id MessageID, parents []MessageID) {
	if l.of == nil {
		l.of = map[MessageID][]MessageID{}
	}
	if _, known := l.of[id]; !known {
		l.of[id] = parents
	}
}

// summarize gives the past of a message with these parents, as a worker needs it that knows for
// certain only what it made or told.
func (l *lineage) summarize(to WorkerID, parents []MessageID) Lineage {
	past := Lineage{Parents: parents}
	for next, unseen := 0, parents; ; next++ {
		for _, id := range unseen {
			if id.Creator() == to || slices.Contains(l.told[id], to) || past.has(id) {
				continue
			}
			past.Ancestors = append(past.Ancestors, Ancestor{id, l.of[id]})
		}
		if next == len(past.Ancestors) {
			return past
		}
		unseen = past.Ancestors[next].Parents
	}
}

func (p *Lineage) has(id MessageID) bool {
	return slices.ContainsFunc(p.Ancestors, func(a Ancestor) bool { return a.ID == id })
}

// reduce leaves out parents that are near ancestors of others: a loop over calls would otherwise
// name all its past in every message.
func (l *lineage) reduce(parents []MessageID) []MessageID {
	if len(parents) < 2 {
		return parents
	}
	above := map[MessageID]struct{}{}
	for _, id := range parents {
		for _, up := range l.of[id] {
			above[up] = struct{}{}
			for _, upper := range l.of[up] {
				above[upper] = struct{}{}
			}
		}
	}
	return slices.DeleteFunc(parents, func(id MessageID) bool { _, drop := above[id]; return drop })
}

// plan is all messages that take part in a backward which leaves the root by these, in order. It
// fails where the past of one is not known, which no honest worker can bring about.
func (l *lineage) plan(from []MessageID) (Plan, error) {
	seen := make(map[MessageID]struct{}, len(from))
	stack := slices.Clone(from)
	plan := make(Plan, 0, len(from))
	for len(stack) > 0 {
		id := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if _, twice := seen[id]; twice {
			continue
		}
		parents, known := l.of[id]
		if !known {
			return nil, fmt.Errorf("%w: nobody told of message %v, which takes part", ErrProtocol, id)
		}
		seen[id] = struct{}{}
		plan = append(plan, id)
		stack = append(stack, parents...)
	}
	slices.Sort(plan)
	return plan, nil
}

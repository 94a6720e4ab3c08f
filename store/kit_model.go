package store

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// model is the store done again the dumb way: maps, and lists that are searched from end to end.
type model struct {
	data    map[string]string
	queues  map[string][]string
	waits   []modelWait
	watches []modelWatch
	called  map[clientID]string
	limits  Limits
}

type modelWait struct {
	who   clientID
	op    op
	keys  []string // those still missing; of a fetch all
	turn  bool
	world int64
}

type modelWatch struct {
	who clientID
	key string
}

func newModel(limits Limits) *model {
	return &model{data: map[string]string{}, queues: map[string][]string{}, called: map[clientID]string{}, limits: limits}
}

func (m *model) clone() *model {
	c := &model{maps.Clone(m.data), map[string][]string{}, nil, slices.Clone(m.watches), maps.Clone(m.called), m.limits}
	for k, q := range m.queues {
		c.queues[k] = slices.Clone(q)
	}
	for _, w := range m.waits {
		w.keys = slices.Clone(w.keys)
		c.waits = append(c.waits, w)
	}
	return c
}

// stored and interests are what the memory limit counts.
func (m *model) stored() (n int) {
	for k, v := range m.data {
		n += len(k) + len(v) + 64
	}
	for k, q := range m.queues {
		n += len(k) + 64
		for _, v := range q {
			n += len(v) + 64
		}
	}
	return n
}

func (m *model) interests(of func(clientID) bool) (n int) {
	for _, w := range m.waits {
		for _, k := range w.keys {
			if w.op == opBarrier || w.op == opReach {
				k = fmt.Sprint(w.world, " ", k)
			}
			if of(w.who) {
				n += len(k) + 64
			}
		}
	}
	for _, w := range m.watches {
		if of(w.who) {
			n += len(w.key) + 64
		}
	}
	return n
}

func anybody(clientID) bool { return true }

// apply returns the replies as texts, in no particular order.
func (m *model) apply(who clientID, cmd command) []string {
	key, called := m.called[who]
	delete(m.called, who)
	out := m.bounded(who, cmd)
	if called && (cmd.op != opPop || cmd.key != key) {
		out = append(out, m.call(key)...)
	}
	return out
}

func (m *model) bounded(who clientID, cmd command) []string {
	switch cmd.op {
	case opWait, opFetch, opTake, opReady, opBarrier, opArrive, opReach, opCancelWait:
		m.stopWaiting(who)
	}
	is := func(id clientID) bool { return id == who }
	tried := m.clone()
	out := tried.try(who, cmd)
	grows := tried.stored() - m.stored() + max(0, tried.interests(is)-m.interests(is))
	if grows > 0 && m.stored()+m.interests(anybody)+grows > m.limits.Memory {
		return []string{fmt.Sprint(who, ": full")}
	}
	*m = *tried
	return out
}

func (m *model) try(who clientID, cmd command) []string {
	v, there := m.data[cmd.key]
	say := func(what any) string { return fmt.Sprintf("%d: %v", who, what) }
	switch cmd.op {
	case opSet:
		return append(m.put(Pair{cmd.key, cmd.value}), say("done"))
	case opMultiSet:
		return append(m.put(cmd.pairs...), say("done"))
	case opAppend:
		if len(v)+len(cmd.value) > m.limits.Value {
			return []string{say("too large")}
		}
		return append(m.put(Pair{cmd.key, []byte(v + string(cmd.value))}), say("done"))
	case opCompareSet:
		if v == string(cmd.expected) {
			return append(m.put(Pair{cmd.key, cmd.value}), say(string(cmd.value)))
		}
		if !there {
			v = string(cmd.expected)
		}
		return []string{say(v)}
	case opGet:
		if !there {
			return []string{say("no key")}
		}
		return []string{say(v)}
	case opAdd, opBarrier, opArrive, opReach:
		var n int64
		if _, err := fmt.Sscanf(v, "%d", &n); there && err != nil {
			return []string{say("no number")}
		}
		if cmd.op == opAdd {
			n += cmd.delta
			return append(m.put(Pair{cmd.key, fmt.Append(nil, n)}), say(n))
		}
		if cmd.op == opReach && n >= cmd.delta {
			return []string{say("done")}
		}
		var out []string
		if cmd.op != opReach {
			n++
			out = m.put(Pair{cmd.key, fmt.Append(nil, n)})
		}
		if cmd.op == opArrive {
			out = append(out, say(n))
		} else {
			m.waits = append(m.waits, modelWait{who, cmd.op, []string{cmd.key}, false, cmd.delta})
		}
		if cmd.op == opReach {
			return out
		}
		return append(out, m.end(func(w modelWait) bool {
			return (w.op == opBarrier || w.op == opReach) && w.keys[0] == cmd.key && (w.world == n || n >= cmd.delta && w.world == cmd.delta)
		})...)
	case opCheck:
		return []string{say(len(m.missing(cmd.keys)) == 0)}
	case opMultiGet:
		return []string{say(m.all(cmd.keys))}
	case opNumKeys:
		return []string{say(len(m.data))}
	case opList:
		return []string{say(slices.Sorted(maps.Keys(m.data)))}
	case opLen:
		return []string{say(len(m.queues[cmd.key]))}
	case opPop:
		n := len(m.queues[cmd.key])
		return []string{say(fmt.Sprint(n, " ", m.pop(cmd.key)))}
	case opPush:
		return append(m.push(cmd), say("done"))
	case opWait, opFetch, opTake, opReady:
		return m.wait(who, cmd)
	case opWatch:
		if w := (modelWatch{who, cmd.key}); !slices.Contains(m.watches, w) {
			m.watches = append(m.watches, w)
		}
		return []string{say("done")}
	case opUnwatch:
		m.watches = slices.DeleteFunc(m.watches, func(w modelWatch) bool { return w == modelWatch{who, cmd.key} })
		return []string{say("done")}
	case opDelete:
		if !there {
			return []string{say(0)}
		}
		delete(m.data, cmd.key)
		return append(m.news(cmd.key, Deleted, v, ""), say(1))
	case opCancelWait:
		return []string{say("done")}
	}
	panic("unknown")
}

func (m *model) wait(who clientID, cmd command) []string {
	w := modelWait{who: who, op: cmd.op, keys: slices.Clone(cmd.keys), turn: cmd.turn}
	switch cmd.op {
	case opTake:
		if len(m.queues[cmd.key]) > 0 {
			return []string{fmt.Sprintf("%d: %s", who, m.pop(cmd.key))}
		}
		w.keys = []string{cmd.key}
	case opReady:
		if w.keys = []string{cmd.key}; len(m.queues[cmd.key]) > 0 {
			w.keys = nil
		}
	case opWait:
		w.keys = m.missing(cmd.keys)
	}
	m.waits = append(m.waits, w)
	return m.end(func(w modelWait) bool { return w.who == who && m.over(w) })
}

// over says whether the wait of a wait or a fetch is.
func (m *model) over(w modelWait) bool {
	switch w.op {
	case opFetch:
		return !slices.ContainsFunc(w.keys, func(k string) bool { _, there := m.data[k]; return !there })
	case opWait, opReady:
		return len(w.keys) == 0
	}
	return false
}

// end answers and forgets the waits that are over.
func (m *model) end(over func(modelWait) bool) (out []string) {
	m.waits = slices.DeleteFunc(m.waits, func(w modelWait) bool {
		if !over(w) {
			return false
		}
		what := "done"
		if w.op == opFetch {
			what = m.all(w.keys)
		}
		out = append(out, fmt.Sprintf("%d: %s", w.who, what))
		return true
	})
	return out
}

func (m *model) all(keys []string) string {
	out := []string{}
	for _, k := range keys {
		v, there := m.data[k]
		if !there {
			v = "<none>"
		}
		out = append(out, strconv.Quote(v))
	}
	return strings.Join(out, " ")
}

func (m *model) pop(key string) (v string) {
	if q := m.queues[key]; len(q) > 0 {
		v = q[0]
		if m.queues[key] = q[1:]; len(q) == 1 {
			delete(m.queues, key)
		}
	}
	return v
}

func (m *model) push(cmd command) []string {
	for i, w := range m.waits {
		if w.op == opTake && w.keys[0] == cmd.key {
			m.waits = slices.Delete(m.waits, i, i+1)
			return []string{fmt.Sprintf("%d: %s", w.who, cmd.value)}
		}
	}
	m.queues[cmd.key] = append(m.queues[cmd.key], string(cmd.value))
	for i := range m.waits {
		if w := &m.waits[i]; w.op == opWait && !w.turn {
			w.keys = slices.DeleteFunc(w.keys, func(k string) bool { return k == cmd.key })
		}
	}
	return append(m.end(m.over), m.call(cmd.key)...)
}

// call ends the wait of one client of each kind that wants to pop, if there is something.
func (m *model) call(key string) []string {
	if len(m.queues[key]) == 0 {
		return nil
	}
	for _, kind := range []op{opWait, opReady} {
		for i := range m.waits {
			w := &m.waits[i]
			if w.op != kind || w.op == opWait && !w.turn || !slices.Contains(w.keys, key) {
				continue
			}
			if w.keys = slices.DeleteFunc(w.keys, func(k string) bool { return k == key }); len(w.keys) == 0 {
				m.called[w.who] = key
				break
			}
		}
	}
	return m.end(m.over)
}

func (m *model) missing(keys []string) (out []string) {
	for _, k := range keys {
		if _, there := m.data[k]; !there && len(m.queues[k]) == 0 {
			out = append(out, k)
		}
	}
	return out
}

func (m *model) put(pairs ...Pair) (out []string) {
	for _, p := range pairs {
		old, there := m.data[p.Key]
		out = append(out, m.news(p.Key, map[bool]ChangeKind{false: Created, true: Updated}[there], old, string(p.Value))...)
		m.data[p.Key] = string(p.Value)
		for i := range m.waits {
			if w := &m.waits[i]; w.op == opWait {
				w.keys = slices.DeleteFunc(w.keys, func(k string) bool { return k == p.Key })
			}
		}
	}
	return append(out, m.end(m.over)...)
}

func (m *model) news(key string, event ChangeKind, old, value string) (out []string) {
	for _, w := range m.watches {
		if w.key == key {
			out = append(out, fmt.Sprintf("%d: news %v %s %q %q", w.who, event, key, old, value))
		}
	}
	return out
}

func (m *model) stopWaiting(who clientID) {
	m.waits = slices.DeleteFunc(m.waits, func(w modelWait) bool { return w.who == who })
}

func (m *model) leaves(who clientID) (out []string) {
	m.stopWaiting(who)
	m.watches = slices.DeleteFunc(m.watches, func(w modelWatch) bool { return w.who == who })
	key, called := m.called[who]
	if delete(m.called, who); called {
		out = m.call(key)
	}
	return out
}

// textOf is a reply as the model words it.
func textOf(r reply) string {
	say := func(what any) string { return fmt.Sprintf("%d: %v", r.to, what) }
	for text, err := range map[string]error{"no key": errNoKey, "no number": ErrNotANumber, "full": ErrFull, "too large": ErrTooLarge} {
		if errors.Is(r.err, err) {
			return say(text)
		}
	}
	if r.err != nil {
		return r.err.Error()
	}
	switch r.op {
	case opAdd, opArrive, opNumKeys, opDelete, opLen:
		return say(r.n)
	case opCheck:
		return say(r.ok)
	case opMultiGet, opFetch:
		out := []string{}
		for _, v := range r.values {
			if v == nil {
				v = []byte("<none>")
			}
			out = append(out, strconv.Quote(string(v)))
		}
		return say(strings.Join(out, " "))
	case opList:
		return say(slices.Sorted(slices.Values(r.keys)))
	case opPop:
		return say(fmt.Sprint(r.n, " ", string(r.value)))
	case opGet, opCompareSet, opTake:
		return say(string(r.value))
	case opNews:
		return say(fmt.Sprintf("news %v %s %q %q", r.event, r.key, r.old, r.value))
	}
	return say("done")
}

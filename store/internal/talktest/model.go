package talktest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
)

// Model is the store done again the dumb way: maps, and lists that are searched from end to end.
type Model struct {
	Data    map[string]string
	Queues  map[string][]string
	Waits   []modelWait
	Watches []modelWatch
	called  map[state.ClientID]string
	limits  kv.Limits
}

type modelWait struct {
	who   state.ClientID
	op    state.Op
	keys  []string // those still missing; of a fetch all
	turn  bool
	world int64
}

type modelWatch struct {
	who state.ClientID
	key string
}

func newModel(limits kv.Limits) *Model {
	return &Model{Data: map[string]string{}, Queues: map[string][]string{}, called: map[state.ClientID]string{}, limits: limits}
}

func (m *Model) clone() *Model {
	c := &Model{maps.Clone(m.Data), map[string][]string{}, nil, slices.Clone(m.Watches), maps.Clone(m.called), m.limits}
	for k, q := range m.Queues {
		c.Queues[k] = slices.Clone(q)
	}
	for _, w := range m.Waits {
		w.keys = slices.Clone(w.keys)
		c.Waits = append(c.Waits, w)
	}
	return c
}

// Stored is what the memory limit counts of keys and values.
func (m *Model) Stored() (n int) {
	for k, v := range m.Data {
		n += len(k) + len(v) + 64
	}
	for k, q := range m.Queues {
		n += len(k) + 64
		for _, v := range q {
			n += len(v) + 64
		}
	}
	return n
}

// Interests is likewise what those clients wait for and watch.
func (m *Model) Interests(of func(state.ClientID) bool) (n int) {
	for _, w := range m.Waits {
		for _, k := range w.keys {
			if w.op == state.OpBarrier || w.op == state.OpReach {
				k = fmt.Sprint(w.world, " ", k)
			}
			if of(w.who) {
				n += len(k) + 64
			}
		}
	}
	for _, w := range m.Watches {
		if of(w.who) {
			n += len(w.key) + 64
		}
	}
	return n
}

// Anybody is every client.
func Anybody(state.ClientID) bool { return true }

// apply returns the replies as texts, in no particular order.
func (m *Model) apply(who state.ClientID, cmd state.Command) []string {
	key, called := m.called[who]
	delete(m.called, who)
	out := m.bounded(who, cmd)
	if called && (cmd.Op != state.OpPop || cmd.Key != key) {
		out = append(out, m.call(key)...)
	}
	return out
}

func (m *Model) bounded(who state.ClientID, cmd state.Command) []string {
	switch cmd.Op {
	case state.OpWait, state.OpFetch, state.OpTake, state.OpReady, state.OpBarrier, state.OpArrive, state.OpReach, state.OpCancelWait:
		m.stopWaiting(who)
	}
	is := func(id state.ClientID) bool { return id == who }
	tried := m.clone()
	out := tried.try(who, cmd)
	grows := tried.Stored() - m.Stored() + max(0, tried.Interests(is)-m.Interests(is))
	if grows > 0 && m.Stored()+m.Interests(Anybody)+grows > m.limits.Memory {
		return []string{fmt.Sprint(who, ": full")}
	}
	*m = *tried
	return out
}

func (m *Model) try(who state.ClientID, cmd state.Command) []string {
	v, there := m.Data[cmd.Key]
	say := func(what any) string { return fmt.Sprintf("%d: %v", who, what) }
	switch cmd.Op {
	case state.OpSet:
		return append(m.put(kv.Pair{Key: cmd.Key, Value: cmd.Value}), say("done"))
	case state.OpMultiSet:
		return append(m.put(cmd.Pairs...), say("done"))
	case state.OpAppend:
		if len(v)+len(cmd.Value) > m.limits.Value {
			return []string{say("too large")}
		}
		return append(m.put(kv.Pair{Key: cmd.Key, Value: []byte(v + string(cmd.Value))}), say("done"))
	case state.OpCompareSet:
		if v == string(cmd.Expected) {
			return append(m.put(kv.Pair{Key: cmd.Key, Value: cmd.Value}), say(string(cmd.Value)))
		}
		if !there {
			v = string(cmd.Expected)
		}
		return []string{say(v)}
	case state.OpGet:
		if !there {
			return []string{say("no key")}
		}
		return []string{say(v)}
	case state.OpAdd, state.OpBarrier, state.OpArrive, state.OpReach:
		var n int64
		if _, err := fmt.Sscanf(v, "%d", &n); there && err != nil {
			return []string{say("no number")}
		}
		if cmd.Op == state.OpAdd {
			n += cmd.Delta
			return append(m.put(kv.Pair{Key: cmd.Key, Value: fmt.Append(nil, n)}), say(n))
		}
		if cmd.Op == state.OpReach && n >= cmd.Delta {
			return []string{say("done")}
		}
		var out []string
		if cmd.Op != state.OpReach {
			n++
			out = m.put(kv.Pair{Key: cmd.Key, Value: fmt.Append(nil, n)})
		}
		if cmd.Op == state.OpArrive {
			out = append(out, say(n))
		} else {
			m.Waits = append(m.Waits, modelWait{who, cmd.Op, []string{cmd.Key}, false, cmd.Delta})
		}
		if cmd.Op == state.OpReach {
			return out
		}
		return append(out, m.end(func(w modelWait) bool {
			return (w.op == state.OpBarrier || w.op == state.OpReach) && w.keys[0] == cmd.Key && (w.world == n || n >= cmd.Delta && w.world == cmd.Delta)
		})...)
	case state.OpCheck:
		return []string{say(len(m.missing(cmd.Keys)) == 0)}
	case state.OpMultiGet:
		return []string{say(m.all(cmd.Keys))}
	case state.OpNumKeys:
		return []string{say(len(m.Data))}
	case state.OpList:
		return []string{say(slices.Sorted(maps.Keys(m.Data)))}
	case state.OpLen:
		return []string{say(len(m.Queues[cmd.Key]))}
	case state.OpPop:
		n := len(m.Queues[cmd.Key])
		return []string{say(fmt.Sprint(n, " ", m.pop(cmd.Key)))}
	case state.OpPush:
		return append(m.push(cmd), say("done"))
	case state.OpWait, state.OpFetch, state.OpTake, state.OpReady:
		return m.wait(who, cmd)
	case state.OpWatch:
		if w := (modelWatch{who, cmd.Key}); !slices.Contains(m.Watches, w) {
			m.Watches = append(m.Watches, w)
		}
		return []string{say("done")}
	case state.OpUnwatch:
		m.Watches = slices.DeleteFunc(m.Watches, func(w modelWatch) bool { return w == modelWatch{who, cmd.Key} })
		return []string{say("done")}
	case state.OpDelete:
		if !there {
			return []string{say(0)}
		}
		delete(m.Data, cmd.Key)
		return append(m.news(cmd.Key, kv.Deleted, v, ""), say(1))
	case state.OpCancelWait:
		return []string{say("done")}
	}
	panic("unknown")
}

func (m *Model) wait(who state.ClientID, cmd state.Command) []string {
	w := modelWait{who: who, op: cmd.Op, keys: slices.Clone(cmd.Keys), turn: cmd.Turn}
	switch cmd.Op {
	case state.OpTake:
		if len(m.Queues[cmd.Key]) > 0 {
			return []string{fmt.Sprintf("%d: %s", who, m.pop(cmd.Key))}
		}
		w.keys = []string{cmd.Key}
	case state.OpReady:
		if w.keys = []string{cmd.Key}; len(m.Queues[cmd.Key]) > 0 {
			w.keys = nil
		}
	case state.OpWait:
		w.keys = m.missing(cmd.Keys)
	}
	m.Waits = append(m.Waits, w)
	return m.end(func(w modelWait) bool { return w.who == who && m.over(w) })
}

// over says whether the wait of a wait or a fetch is.
func (m *Model) over(w modelWait) bool {
	switch w.op {
	case state.OpFetch:
		return !slices.ContainsFunc(w.keys, func(k string) bool { _, there := m.Data[k]; return !there })
	case state.OpWait, state.OpReady:
		return len(w.keys) == 0
	}
	return false
}

// end answers and forgets the waits that are over.
func (m *Model) end(over func(modelWait) bool) (out []string) {
	m.Waits = slices.DeleteFunc(m.Waits, func(w modelWait) bool {
		if !over(w) {
			return false
		}
		what := "done"
		if w.op == state.OpFetch {
			what = m.all(w.keys)
		}
		out = append(out, fmt.Sprintf("%d: %s", w.who, what))
		return true
	})
	return out
}

func (m *Model) all(keys []string) string {
	out := []string{}
	for _, k := range keys {
		v, there := m.Data[k]
		if !there {
			v = "<none>"
		}
		out = append(out, strconv.Quote(v))
	}
	return strings.Join(out, " ")
}

func (m *Model) pop(key string) (v string) {
	if q := m.Queues[key]; len(q) > 0 {
		v = q[0]
		if m.Queues[key] = q[1:]; len(q) == 1 {
			delete(m.Queues, key)
		}
	}
	return v
}

func (m *Model) push(cmd state.Command) []string {
	for i, w := range m.Waits {
		if w.op == state.OpTake && w.keys[0] == cmd.Key {
			m.Waits = slices.Delete(m.Waits, i, i+1)
			return []string{fmt.Sprintf("%d: %s", w.who, cmd.Value)}
		}
	}
	m.Queues[cmd.Key] = append(m.Queues[cmd.Key], string(cmd.Value))
	for i := range m.Waits {
		if w := &m.Waits[i]; w.op == state.OpWait && !w.turn {
			w.keys = slices.DeleteFunc(w.keys, func(k string) bool { return k == cmd.Key })
		}
	}
	return append(m.end(m.over), m.call(cmd.Key)...)
}

// call ends the wait of one client of each kind that wants to pop, if there is something.
func (m *Model) call(key string) []string {
	if len(m.Queues[key]) == 0 {
		return nil
	}
	for _, kind := range []state.Op{state.OpWait, state.OpReady} {
		for i := range m.Waits {
			w := &m.Waits[i]
			if w.op != kind || w.op == state.OpWait && !w.turn || !slices.Contains(w.keys, key) {
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

func (m *Model) missing(keys []string) (out []string) {
	for _, k := range keys {
		if _, there := m.Data[k]; !there && len(m.Queues[k]) == 0 {
			out = append(out, k)
		}
	}
	return out
}

func (m *Model) put(pairs ...kv.Pair) (out []string) {
	for _, p := range pairs {
		old, there := m.Data[p.Key]
		out = append(out, m.news(p.Key, map[bool]kv.ChangeKind{false: kv.Created, true: kv.Updated}[there], old, string(p.Value))...)
		m.Data[p.Key] = string(p.Value)
		for i := range m.Waits {
			if w := &m.Waits[i]; w.op == state.OpWait {
				w.keys = slices.DeleteFunc(w.keys, func(k string) bool { return k == p.Key })
			}
		}
	}
	return append(out, m.end(m.over)...)
}

func (m *Model) news(key string, event kv.ChangeKind, old, value string) (out []string) {
	for _, w := range m.Watches {
		if w.key == key {
			out = append(out, fmt.Sprintf("%d: news %v %s %q %q", w.who, event, key, old, value))
		}
	}
	return out
}

func (m *Model) stopWaiting(who state.ClientID) {
	m.Waits = slices.DeleteFunc(m.Waits, func(w modelWait) bool { return w.who == who })
}

func (m *Model) leaves(who state.ClientID) (out []string) {
	m.stopWaiting(who)
	m.Watches = slices.DeleteFunc(m.Watches, func(w modelWatch) bool { return w.who == who })
	key, called := m.called[who]
	if delete(m.called, who); called {
		out = m.call(key)
	}
	return out
}

// TextOf is a reply as the model words it.
func TextOf(r state.Reply) string {
	say := func(what any) string { return fmt.Sprintf("%d: %v", r.To, what) }
	for text, err := range map[string]error{"no key": kv.ErrNoKey, "no number": kv.ErrNotANumber, "full": kv.ErrFull, "too large": kv.ErrTooLarge} {
		if errors.Is(r.Err, err) {
			return say(text)
		}
	}
	if r.Err != nil {
		return r.Err.Error()
	}
	switch r.Op {
	case state.OpAdd, state.OpArrive, state.OpNumKeys, state.OpDelete, state.OpLen:
		return say(r.N)
	case state.OpCheck:
		return say(r.OK)
	case state.OpMultiGet, state.OpFetch:
		out := []string{}
		for _, v := range r.Values {
			if v == nil {
				v = []byte("<none>")
			}
			out = append(out, strconv.Quote(string(v)))
		}
		return say(strings.Join(out, " "))
	case state.OpList:
		return say(slices.Sorted(slices.Values(r.Keys)))
	case state.OpPop:
		return say(fmt.Sprint(r.N, " ", string(r.Value)))
	case state.OpGet, state.OpCompareSet, state.OpTake:
		return say(string(r.Value))
	case state.OpNews:
		return say(fmt.Sprintf("news %v %s %q %q", r.Event, r.Key, r.Old, r.Value))
	}
	return say("done")
}

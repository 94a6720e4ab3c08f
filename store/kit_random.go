package store

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func randomCommand(r *rand.Rand) command {
	key := func() string { return "k" + strconv.Itoa(r.IntN(4)) }
	text := func() []byte { return []byte([]string{"", "1", "-3", "x"}[r.IntN(4)]) }
	cmd := command{op: op(r.IntN(int(opUnwatch) + 1)), turn: r.IntN(2) == 0}
	switch cmd.op {
	case opCheck, opWait, opMultiGet, opFetch:
		for range r.IntN(4) {
			cmd.keys = append(cmd.keys, key())
		}
		return cmd
	case opNumKeys, opList, opCancelWait:
		return cmd
	case opMultiSet:
		for range r.IntN(4) {
			cmd.pairs = append(cmd.pairs, Pair{key(), text()})
		}
		return cmd
	case opSet, opAppend, opPush:
		cmd.value = text()
	case opCompareSet:
		cmd.expected, cmd.value = text(), text()
	case opAdd:
		cmd.delta = int64(r.IntN(7) - 3)
	case opBarrier, opArrive, opReach:
		cmd.delta = int64(r.IntN(5))
	}
	cmd.key = key()
	return cmd
}

// randomly runs random commands of four clients through a state and a model, and each after every
// reply. It returns the state, which all clients have left.
func randomly(t *testing.T, seed uint64, changed func(command), each func(s *state, m *model)) *state {
	defer func() {
		if t.Failed() {
			t.Log("the seed is ", seed)
		}
	}()
	return randomlyFrom(t, rand.New(rand.NewPCG(seed, 0)), changed, each)
}

// randomlyFrom is randomly with choices of the caller's own.
func randomlyFrom(t *testing.T, r *rand.Rand, changed func(command), each func(s *state, m *model)) *state {
	limits := Limits{Value: 8}
	if r.IntN(2) == 0 {
		limits.Memory = 200 + r.IntN(1200)
	}
	s, m := newState(limits.withDefaults()), newModel(limits.withDefaults())
	s.changed = changed
	for step := range 120 {
		who := clientID(1 + r.IntN(4))
		if r.IntN(25) == 0 {
			require.ElementsMatch(t, m.leaves(who), texted(s.leaves(who, nil)), "step %d: client %d leaves", step, who)
			continue
		}
		cmd := randomCommand(r)
		require.ElementsMatch(t, m.apply(who, cmd), texted(s.apply(who, cmd, nil)), "step %d: client %d asks %+v", step, who, cmd)
		each(s, m)
	}
	for who := range clientID(5) {
		require.ElementsMatch(t, m.leaves(who), texted(s.leaves(who, nil)))
	}
	each(s, m)
	return s
}

func texted(replies []reply) (out []string) {
	for _, r := range replies {
		out = append(out, textOf(r))
	}
	return out
}

// contents is what a state keeps, as the model does.
func contents(s *state) (data map[string]string, queues map[string][]string) {
	data, queues = map[string]string{}, map[string][]string{}
	for cmd := range s.snapshot() {
		if cmd.op == opPush {
			queues[cmd.key] = append(queues[cmd.key], string(cmd.value))
		} else {
			data[cmd.key] = string(cmd.value)
		}
	}
	return data, queues
}

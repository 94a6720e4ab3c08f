package talktest

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
)

func randomCommand(r *rand.Rand) state.Command {
	key := func() string { return "k" + strconv.Itoa(r.IntN(4)) }
	text := func() []byte { return []byte([]string{"", "1", "-3", "x"}[r.IntN(4)]) }
	cmd := state.Command{Op: state.Op(r.IntN(int(state.OpUnwatch) + 1)), Turn: r.IntN(2) == 0}
	switch cmd.Op {
	case state.OpCheck, state.OpWait, state.OpMultiGet, state.OpFetch:
		for range r.IntN(4) {
			cmd.Keys = append(cmd.Keys, key())
		}
		return cmd
	case state.OpNumKeys, state.OpList, state.OpCancelWait:
		return cmd
	case state.OpMultiSet:
		for range r.IntN(4) {
			cmd.Pairs = append(cmd.Pairs, kv.Pair{Key: key(), Value: text()})
		}
		return cmd
	case state.OpSet, state.OpAppend, state.OpPush:
		cmd.Value = text()
	case state.OpCompareSet:
		cmd.Expected, cmd.Value = text(), text()
	case state.OpAdd:
		cmd.Delta = int64(r.IntN(7) - 3)
	case state.OpBarrier, state.OpArrive, state.OpReach:
		cmd.Delta = int64(r.IntN(5))
	}
	cmd.Key = key()
	return cmd
}

// Randomly runs random commands of four clients through a state and a model, and each after every
// reply. It returns the state, which all clients have left.
func Randomly(t *testing.T, seed uint64, changed func(state.Command), each func(s *state.State, m *Model)) *state.State {
	defer func() {
		if t.Failed() {
			t.Log("the seed is ", seed)
		}
	}()
	return RandomlyFrom(t, rand.New(rand.NewPCG(seed, 0)), changed, each)
}

// RandomlyFrom is Randomly with choices of the caller's own.
func RandomlyFrom(t *testing.T, r *rand.Rand, changed func(state.Command), each func(s *state.State, m *Model)) *state.State {
	limits := kv.Limits{Value: 8}
	if r.IntN(2) == 0 {
		limits.Memory = 200 + r.IntN(1200)
	}
	s, m := state.New(kv.Defaulted(limits)), newModel(kv.Defaulted(limits))
	s.Changed = changed
	for step := range 120 {
		who := state.ClientID(1 + r.IntN(4))
		if r.IntN(25) == 0 {
			require.ElementsMatch(t, m.leaves(who), Texted(s.Leaves(who, nil)), "step %d: client %d leaves", step, who)
			continue
		}
		cmd := randomCommand(r)
		require.ElementsMatch(t, m.apply(who, cmd), Texted(s.Apply(who, cmd, nil)), "step %d: client %d asks %+v", step, who, cmd)
		each(s, m)
	}
	for who := range state.ClientID(5) {
		require.ElementsMatch(t, m.leaves(who), Texted(s.Leaves(who, nil)))
	}
	each(s, m)
	return s
}

// Texted are replies as the model words them.
func Texted(replies []state.Reply) (out []string) {
	for _, r := range replies {
		out = append(out, TextOf(r))
	}
	return out
}

// Contents is what a state keeps, as the model does.
func Contents(s *state.State) (data map[string]string, queues map[string][]string) {
	data, queues = map[string]string{}, map[string][]string{}
	for cmd := range s.Snapshot() {
		if cmd.Op == state.OpPush {
			queues[cmd.Key] = append(queues[cmd.Key], string(cmd.Value))
		} else {
			data[cmd.Key] = string(cmd.Value)
		}
	}
	return data, queues
}

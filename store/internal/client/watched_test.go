package client

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
)

// A key that changes at random, a connection that is lost at random with the news that are on it,
// and a value that is asked for when there is one again, in order with the news. What is told is
// one chain without a gap that nobody speaks of, and ends in what there is.
func TestWhatAWatchTellsIsAChainThatEndsInWhatThereIs(t *testing.T) {
	for seed := range uint64(soak.Cases(5000)) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		next := 0
		random := func() []byte {
			if rnd.IntN(3) == 0 {
				return nil
			}
			next++ // no value comes twice: a value that comes back cannot be told from one that stayed
			return []byte(fmt.Sprint(next))
		}
		truth := random()
		var wire []state.Reply // news on their way
		change := func() {
			before := truth
			if truth = random(); before == nil && truth == nil {
				return
			}
			wire = append(wire, state.Reply{Op: state.OpNews, Event: kindOf(before, truth), Old: noNil(before), Value: noNil(truth)})
		}
		w := newWatched("k")
		var told []kv.Change
		w.listeners[&listener{send: func(ch kv.Change) { told = append(told, ch) }}] = struct{}{}
		deliver := func(n int) {
			for ; n > 0 && len(wire) > 0; n-- {
				w.heard(wire[0])
				wire = wire[1:]
			}
		}
		var first []byte
		for session := range 4 {
			w.stale, wire = true, nil
			for range rnd.IntN(3) {
				change()
			}
			deliver(len(wire))
			if session == 0 {
				first = truth
			}
			w.found(truth)
			for range rnd.IntN(8) {
				change()
				deliver(rnd.IntN(3))
			}
			if rnd.IntN(2) == 0 {
				deliver(len(wire))
			}
			for range rnd.IntN(3) { // while there is no connection
				truth = random()
			}
		}
		w.stale = true
		w.found(truth)
		at := first
		for _, ch := range told {
			require.True(t, same(at, ch.Old), "seed %d: %q and then %v", seed, at, told)
			require.Equal(t, kindOf(ch.Old, ch.New), ch.Kind)
			at = ch.New
		}
		require.True(t, same(truth, at), "seed %d: %q, but told %v", seed, truth, told)
	}
}

func noNil(b []byte) []byte { return append([]byte{}, b...) }

func TestNewsOfBeforeAWatchBeganAreNotTold(t *testing.T) {
	w := newWatched("k")
	var told []kv.Change
	w.listeners[&listener{send: func(ch kv.Change) { told = append(told, ch) }}] = struct{}{}
	w.heard(state.Reply{Event: kv.Created, Value: []byte("1")})
	w.heard(state.Reply{Event: kv.Updated, Old: []byte("1"), Value: []byte("2")})
	w.found([]byte("2"))
	require.Empty(t, told)
	w.heard(state.Reply{Event: kv.Updated, Old: []byte("2"), Value: []byte("3")})
	require.Equal(t, []kv.Change{{Kind: kv.Updated, Key: "k", Old: []byte("2"), New: []byte("3")}}, told)
}

package client

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
)

func TestEveryCommandHasItsEffect(t *testing.T) {
	require.Equal(t, map[effect][]state.Op{
		reads:   {state.OpGet, state.OpCheck, state.OpWait, state.OpNumKeys, state.OpWatch, state.OpMultiGet, state.OpCancelWait, state.OpLen, state.OpList, state.OpFetch, state.OpReady, state.OpReach, state.OpUnwatch, state.OpNews},
		repeats: {state.OpSet, state.OpDelete, state.OpMultiSet},
		once:    {state.OpCompareSet, state.OpAdd, state.OpAppend, state.OpPush, state.OpPop, state.OpBarrier, state.OpTake, state.OpArrive},
	}, func() map[effect][]state.Op {
		got := map[effect][]state.Op{}
		for o := state.Op(0); o <= state.OpNews; o++ {
			got[effectOf(o)] = append(got[effectOf(o)], o)
		}
		return got
	}())
}

// A world of random tries of one operation, in which it is known how often the change was made.
// What the client decides must never make it twice where that matters, and its error must say "it
// may have been applied" whenever it was.
func TestNothingIsDoneTwiceAndNoErrorHidesAChange(t *testing.T) {
	for seed := range uint64(soak.Cases(20000)) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		kind := effect(rnd.IntN(3))
		var r retry
		applied, mayBe, brief := 0, false, 0
		for try := 0; ; try++ {
			require.Less(t, try, 1000, "it ends")
			o := outcome{err: errHungUp, brief: rnd.IntN(3) > 0}
			told := false
			switch rnd.IntN(6) {
			case 0: // no connection
				o.brief = false
			case 1: // sent, and lost on the way there or back
				o.sent = kind
				if mayBe = mayBe || kind != reads; rnd.IntN(2) == 0 {
					applied++
				}
			case 2: // the server said no
				o = outcome{err: kv.ErrFull, sent: kind, told: true}
				told = true
			case 3:
				o = outcome{}
				applied++
			case 4:
				o.final, o.brief = true, false
			}
			if o.brief {
				brief++
			} else {
				brief = 0
			}
			wait, over, err := r.next(o, rnd.Float64())
			if !over {
				require.NoError(t, err)
				require.False(t, o.sent == once, "a change that may have been made is not made again")
				require.True(t, wait >= 0 && wait <= 2*retryMost)
				require.Less(t, brief, mostBrief)
				continue
			}
			if o.err == nil {
				require.NoError(t, err)
				break
			}
			require.ErrorIs(t, err, o.err)
			require.Equal(t, mayBe, errors.Is(err, kv.ErrUncertain), "%v", err)
			require.True(t, told || o.final || o.sent == once || brief == mostBrief, "it is not given up too early")
			break
		}
		require.True(t, applied < 2 || kind != once)
	}
}

func TestThePausesBetweenTriesGrowToASecondAndAreNotTheSameForAll(t *testing.T) {
	var r retry
	var waits []time.Duration
	for range 12 {
		wait, over, _ := r.next(outcome{err: errHungUp}, 0.5)
		require.False(t, over)
		waits = append(waits, wait)
	}
	require.Equal(t, retryFirst/2, waits[0])
	require.Equal(t, 2*retryFirst, waits[1])
	require.Equal(t, 4*retryFirst, waits[2])
	require.Equal(t, retryMost, waits[11])
	a, b := retry{fails: 3}, retry{fails: 3}
	first, _, _ := a.next(outcome{err: errHungUp}, 0.1)
	second, _, _ := b.next(outcome{err: errHungUp}, 0.9)
	require.NotEqual(t, first, second)
}

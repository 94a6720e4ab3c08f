package cuda

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

func TestWhoDependsOnWorkInDoubtIsToldAndOthersAreNot(t *testing.T) {
	var x tellings
	found := errors.New("found")
	x.named = clock{5, 3}
	x.clear(found)
	require.True(t, x.open())
	require.True(t, x.due(&clock{1}, &x.seen))
	require.False(t, x.due(&clock{0, 0, 9}, &x.seen), "another stream named no record")
	x.tell(&clock{2}, &clock{1, 1}, &clock{7, 3})
	require.False(t, x.due(&clock{5}, &x.seen), "a chain is told once")
	require.True(t, x.due(&clock{7, 1}, &x.seen), "another one is, too")
	x.tell(&clock{7, 1}, &clock{1, 2}, &clock{7, 3})
	require.True(t, x.due(&clock{0, 2}, &x.seen), "also on the same stream, where it is none with that")
	x.clean(&clock{0, 3})
	require.False(t, x.open())
	x.named = clock{9, 9}
	require.False(t, x.due(&clock{9, 9}, &x.seen), "what comes after the record was cleared is as if nothing had been")
}

func TestWhoLookedBeforeAFaultWasClearedHearsThatOneAndNotALaterOne(t *testing.T) {
	var x tellings
	var errs []error
	for range keptFaults + 3 {
		errs = append(errs, errors.New("found"))
		x.clear(errs[len(errs)-1])
	}
	for epoch := range errs {
		if epoch < 3 {
			require.NoError(t, x.after(epoch), "it is forgotten, and the look has its own copy")
		} else {
			require.Same(t, errs[epoch], x.after(epoch))
		}
	}
	require.Same(t, errs[len(errs)-1], x.last())
}

// met is a fault of the n-th work of a source: it happens some time before whatever comes after that work.
type met struct {
	source int
	n      uint64
	done   bool
	told   bool // to somebody who comes after it, or after another of its chain
}

// ground is random work that meets faults, and what the record tells.
type ground struct {
	tellings
	o       order
	data    [6]history
	faults  []*met
	claimed bool
}

// happen has faults happen: the first claims the record, others find it taken.
func (w *ground) happen(which func(*met) bool) {
	for _, f := range w.faults {
		if !f.done && which(f) {
			f.done, w.claimed = true, true
		}
	}
}

// look is GPU's, of some data. It says whether it found nothing although a fault came before that nobody was told of.
func (w *ground) look(r *rand.Rand, k int) (lost bool) {
	var need clock
	w.data[k].before(&need, false)
	after := w.o.after(&need)
	w.happen(func(f *met) bool { return after[f.source] >= f.n || r.IntN(4) == 0 })
	if !w.claimed && !w.due(&after, &w.seen) {
		w.clean(&after)
		for _, f := range w.faults {
			lost = lost || !f.told && after[f.source] >= f.n
		}
		return lost
	}
	if w.claimed {
		w.happen(func(*met) bool { return true }) // all is done before
		w.clear(nil)
		w.claimed = false
	}
	w.tell(&after, &w.o.chain, &w.o.head)
	for _, f := range w.faults {
		f.told = f.told || w.seen[f.source] >= f.n
	}
	return false
}

func (w *ground) work(r *rand.Rand) {
	stream := w.o.step(&w.data[r.IntN(len(w.data))], &w.data[r.IntN(len(w.data))], r.IntN(3) == 0)
	w.o.ops = w.o.ops[:0]
	w.named[stream] = w.o.head[stream]
	if r.IntN(6) == 0 {
		w.faults = append(w.faults, &met{source: stream, n: w.o.head[stream]})
	}
}

// playFaults says whether a fault was lost; forget is what goes wrong when the record is cleared.
func playFaults(seed uint64, forget func(*tellings)) (lost bool) {
	r := rand.New(rand.NewPCG(seed, 12))
	w := &ground{o: newOrder(1 + r.IntN(4))}
	for range 80 {
		if r.IntN(4) > 0 {
			w.work(r)
			continue
		}
		lost = w.look(r, r.IntN(len(w.data))) || lost
		forget(&w.tellings)
	}
	return lost
}

func TestNoFaultIsLostWhoeverHearsOfAnotherFirst(t *testing.T) {
	for seed := range uint64(soak.Cases(1000)) {
		require.False(t, playFaults(seed, func(*tellings) {}), "seed %d", seed)
	}
	lost := 0
	for seed := range uint64(1000) {
		if playFaults(seed, func(x *tellings) { x.doubt = clock{} }) {
			lost++
		}
	}
	require.Greater(t, lost, 20, "without what is in doubt some are")
}

package gpumem

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

// before is what happens before something, by number: it is kept in full, as the dumbest way there
// is.
type before map[int]bool

func (b before) with(others ...before) before {
	all := before{}
	for _, o := range append(others, b) {
		for n := range o {
			all[n] = true
		}
	}
	return all
}

// world carries out what an order decides, and knows all that happens before what.
type world struct {
	o       order
	streams [waiters]before // what has happened when a stream comes to its end
	events  [sources][ringSize]before
	works   []before // by number: what happens before each work, and it itself
	host    before   // what the host has waited for
	leaves  int      // the wait that is left out; −1: none
	waits   int      // so far
}

func newWorld(streams, leaves int) *world {
	w := &world{o: newOrder(streams), leaves: leaves, host: before{}}
	for s := range w.streams {
		w.streams[s] = before{}
	}
	return w
}

// obey carries out ops, and fails where one waits for nothing new.
func (w *world) obey() error {
	for _, op := range w.o.ops {
		e := &w.events[op.source][op.event]
		if !op.wait {
			*e = w.streams[op.source].with()
			continue
		}
		w.waits++
		if w.waits-1 == w.leaves {
			continue
		}
		fresh := false
		for n := range *e {
			fresh = fresh || !w.streams[op.stream][n] && !w.host[n]
		}
		if !fresh {
			return fmt.Errorf("stream %d waits for what it knows of %d", op.stream, op.source)
		}
		w.streams[op.stream] = w.streams[op.stream].with(*e)
	}
	w.o.ops = w.o.ops[:0]
	return nil
}

// work puts one into a stream.
func (w *world) work(stream int) (n int) {
	n = len(w.works)
	w.streams[stream] = w.streams[stream].with(w.host, before{n: true})
	w.works = append(w.works, w.streams[stream])
	return n
}

// memory is a block as the oracle has it: who wrote it last, and who has read it since.
type memory struct {
	use     history
	wrote   int // −1: nobody
	readers []int
}

// missing says what of the block's uses does not happen before a work that comes.
func (m *memory) missing(have before, write bool) error {
	if m.wrote >= 0 && !have[m.wrote] {
		return fmt.Errorf("the write by %d is not waited for", m.wrote)
	}
	for _, n := range m.readers {
		if write && !have[n] {
			return fmt.Errorf("the read by %d is not waited for", n)
		}
	}
	return nil
}

func (m *memory) uses(n int, write bool) {
	if write {
		m.wrote, m.readers = n, nil
	} else {
		m.readers = append(m.readers, n)
	}
}

// play runs a random schedule, with one wait left out or none, and says what is wrong with it, and
// how many waits there were.
func play(seed uint64, leaves int) (waits int, err error) {
	r := rand.New(rand.NewPCG(seed, 11))
	w := newWorld(1+r.IntN(4), leaves)
	blocks := make([]memory, 2+r.IntN(8))
	for k := range blocks {
		blocks[k].wrote = -1
	}
	for range 20 + r.IntN(150) {
		switch r.IntN(12) {
		case 0:
			err = w.upload(&blocks[r.IntN(len(blocks))])
		case 1, 2:
			err = w.look(&blocks[r.IntN(len(blocks))], early+r.IntN(3))
		case 3:
			err = w.meet(&blocks[r.IntN(len(blocks))])
		default:
			err = w.run(r, blocks)
		}
		if err != nil {
			return w.waits, fmt.Errorf("after %d works: %w", len(w.works), err)
		}
	}
	return w.waits, nil
}

func (w *world) run(r *rand.Rand, blocks []memory) error {
	var from, need clock
	var used []int
	writes := map[int]bool{}
	for _, k := range r.Perm(len(blocks))[:1+r.IntN(min(3, len(blocks)))] {
		used = append(used, k)
		writes[k] = r.IntN(2) == 0
		if !writes[k] {
			blocks[k].use.before(&from, false)
		}
		blocks[k].use.before(&need, writes[k])
	}
	light := r.IntN(3) == 0
	stream, follows := w.o.pick(&from, &need, light)
	at := w.o.submit(stream, &need, follows, light)
	if err := w.obey(); err != nil {
		return err
	}
	n := w.work(stream)
	for _, k := range used {
		if err := blocks[k].missing(w.works[n], writes[k]); err != nil {
			return err
		}
		blocks[k].use.used(stream, at, writes[k])
		blocks[k].uses(n, writes[k])
	}
	return nil
}

func (w *world) upload(m *memory) error {
	var need clock
	m.use.before(&need, true)
	at := w.o.submit(uploads, &need, false, false)
	if err := w.obey(); err != nil {
		return err
	}
	n := w.work(uploads)
	err := m.missing(w.works[n], true)
	m.use.used(uploads, at, true)
	m.uses(n, true)
	return err
}

// look is a stream that only waits.
func (w *world) look(m *memory, stream int) error {
	var need clock
	m.use.before(&need, false)
	w.o.wait(stream, &need)
	if err := w.obey(); err != nil {
		return err
	}
	return m.missing(w.streams[stream].with(w.host), false)
}

// meet has the host wait.
func (w *world) meet(m *memory) error {
	var need clock
	m.use.before(&need, true)
	points := w.o.points(&need, &w.o.done, -1, nil)
	if err := w.obey(); err != nil {
		return err
	}
	for _, p := range points {
		w.host = w.host.with(w.events[p.source][p.event])
		w.o.finished(&p.at)
	}
	return m.missing(w.host, true)
}

func TestWhatUsesABlockComesAfterAllThatItMustAndNoStreamWaitsForWhatItKnows(t *testing.T) {
	for seed := range uint64(soak.Cases(400)) {
		_, err := play(seed, -1)
		require.NoError(t, err, "seed %d", seed)
	}
}

// The oracle of the test above sees each mistake, and there is no wait that is not needed.
func TestAnyWaitThatIsLeftOutIsFound(t *testing.T) {
	left := 0
	for seed := range uint64(soak.Cases(40)) {
		waits, err := play(seed, -1)
		require.NoError(t, err)
		for k := range waits {
			_, err := play(seed, k)
			require.Error(t, err, "seed %d: without wait %d", seed, k)
			left++
		}
	}
	require.Greater(t, left, 400)
}

func TestAChainStaysOnOneStreamWithoutAnEvent(t *testing.T) {
	o := newOrder(4)
	var x, y history
	for k := range 100 {
		var from, need clock
		x.before(&from, false)
		x.before(&need, false)
		y.before(&need, true)
		stream, follows := o.pick(&from, &need, false)
		require.Equal(t, 0, stream)
		require.Equal(t, k > 0, follows)
		n := o.submit(stream, &need, follows, false)
		x.used(stream, n, false)
		y.used(stream, n, true)
		x, y = y, x
		require.Empty(t, o.ops)
	}
}

// step is a run of a program, from its last result to its next.
func (o *order) step(from, to *history, light bool) (stream int) {
	var read, need clock
	from.before(&read, false)
	from.before(&need, false)
	to.before(&need, true)
	stream, follows := o.pick(&read, &need, light)
	n := o.submit(stream, &need, follows, light)
	from.used(stream, n, false)
	to.used(stream, n, true)
	return stream
}

func TestProgramsWithNothingInCommonHaveStreamsOfTheirOwnWhileTheyLast(t *testing.T) {
	for _, light := range []bool{false, true} {
		o := newOrder(4)
		var x [4]history
		at := map[int]bool{}
		for k := range x {
			at[o.step(&x[k], &x[k], light)] = true
		}
		require.Len(t, at, 4)
		for k := range x {
			stream := x[k].writer
			for range 10 {
				require.Equal(t, stream, o.step(&x[k], &x[k], light))
			}
		}
		require.Empty(t, o.ops)
		fifth := new(history)
		oldest := x[0].writer
		require.Equal(t, oldest, o.step(fifth, fifth, light), "that which was not used for the longest time")
	}
}

// A training loop: what steps each parameter reads what the backward wrote, and is not at the head
// of its stream for long.
func TestALoopWithManyLightUpdatesComesToOneStreamWithoutEvents(t *testing.T) {
	o := newOrder(4)
	var params [6]history
	var grads history
	for k := range params { // they were made side by side
		o.step(&params[k], &params[k], false)
	}
	for round := range 10 {
		o.ops = o.ops[:0]
		o.exact = 0
		at := map[int]bool{}
		var from, need clock
		grads.before(&need, true)
		for k := range params {
			params[k].before(&from, false)
			params[k].before(&need, false)
		}
		stream, follows := o.pick(&from, &need, false)
		n := o.submit(stream, &need, follows, false)
		for k := range params {
			params[k].used(stream, n, false)
		}
		grads.used(stream, n, true)
		at[stream] = true
		for k := range params {
			at[o.step(&grads, &params[k], true)] = true
		}
		if round > 1 {
			require.Len(t, at, 1)
			require.Empty(t, o.ops)
		}
	}
}

func TestTwoReadersOfOneResultRunSideBySideAndTheSecondWaitsForNoMore(t *testing.T) {
	o := newOrder(4)
	var params history
	for round := range 3 {
		o.step(&params, &params, false) // an optimizer
		o.ops = o.ops[:0]
		var a, b history
		first, second := o.step(&params, &a, false), o.step(&params, &b, false)
		require.NotEqual(t, first, second)
		known := o.known[second][first]
		if round > 0 { // the first time, nobody thought to record it
			require.Equal(t, params.wrote, known, "and not for the other reader")
		}
	}
}

func TestWhatWasWrittenBeforeLaterWorkIsWaitedForAlone(t *testing.T) {
	o := newOrder(2)
	var a, b history
	o.step(&a, &a, false)
	n := a.wrote
	o.exact = 1
	o.step(&a, &b, false)
	var need clock
	a.before(&need, false)
	o.wait(early, &need)
	require.Equal(t, n, o.known[early][a.writer])
	require.Greater(t, o.head[a.writer], n)
}

func TestThereIsNoWaitForWhatTheHostHasSeenTheEndOf(t *testing.T) {
	o := newOrder(2)
	var a history
	o.step(&a, &a, false)
	o.finished(&o.head)
	var need clock
	a.before(&need, true)
	o.wait(early, &need)
	require.Empty(t, o.ops)
	require.True(t, o.idle(&a, 1))
	o.step(&a, &a, false)
	require.False(t, o.idle(&a, 1))
	require.True(t, o.idle(&a, a.writer))
}

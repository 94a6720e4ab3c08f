package parallel

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/internal/leak"
)

// counted counts how often each index was done, and by how many at once.
type counted struct {
	done    []atomic.Int32
	grain   int
	now     atomic.Int32
	most    atomic.Int32
	inPiece func(from, to int)
}

func newCounted(n, grain int) *counted { return &counted{done: make([]atomic.Int32, n), grain: grain} }

func (c *counted) Piece(from, to int) {
	c.most.Store(max(c.most.Load(), c.now.Add(1)))
	defer c.now.Add(-1)
	if from%c.grain != 0 || to-from > c.grain || to != len(c.done) && to-from != c.grain {
		panic("a piece of another size")
	}
	for k := from; k < to; k++ {
		c.done[k].Add(1)
	}
	if c.inPiece != nil {
		c.inPiece(from, to)
	}
}

func (c *counted) check(t *testing.T) {
	for k := range c.done {
		require.EqualValues(t, 1, c.done[k].Load(), "index %d of %d by %d", k, len(c.done), c.grain)
	}
}

func TestEveryPieceIsDoneOnceWhateverTheThreads(t *testing.T) {
	leak.Check(t)
	r := rand.New(rand.NewPCG(7, 8))
	for range 200 {
		pool := NewPool(1 + r.IntN(6))
		var all sync.WaitGroup
		for range 1 + r.IntN(3) { // several programs at once
			c := newCounted(r.IntN(300), 1+r.IntN(40))
			all.Go(func() {
				for n := range c.done {
					c.done[n].Store(0)
				}
				pool.For(len(c.done), c.grain, c)
				c.check(t)
			})
		}
		all.Wait()
	}
}

func TestHelpersAreNeverMoreThanThereAre(t *testing.T) {
	pool := NewPool(3)
	inner := newCounted(50, 1)
	outer := newCounted(40, 1)
	outer.inPiece = func(from, _ int) {
		if from == 7 {
			pool.For(len(inner.done), 1, inner) // work inside of work
		}
	}
	pool.For(len(outer.done), 1, outer)
	outer.check(t)
	inner.check(t)
	require.LessOrEqual(t, outer.most.Load(), int32(3))
	require.EqualValues(t, 2, pool.free.Load(), "all are idle again")

	alone := newCounted(40, 1)
	require.Equal(t, 2, pool.borrow(9))
	pool.For(len(alone.done), 1, alone)
	alone.check(t)
	require.EqualValues(t, 1, alone.most.Load(), "nobody was idle")
	pool.give(2)
	require.Zero(t, NewPool(1).borrow(1))
}

func TestAPanicOfAPieceIsTheCallersAndTheCrewGoesOn(t *testing.T) {
	pool := NewPool(4)
	for bad := range 20 {
		c := newCounted(20, 1)
		c.inPiece = func(from, _ int) {
			if from == bad {
				panic("spoilt")
			}
		}
		require.PanicsWithValue(t, "spoilt", func() { pool.For(20, 1, c) })
		require.Zero(t, c.now.Load(), "all pieces have ended")
	}
	c := newCounted(20, 1)
	pool.For(20, 1, c)
	c.check(t)
	require.EqualValues(t, 3, pool.free.Load())
}

func TestOneCrewServesTestsOfSimulatedTime(t *testing.T) {
	pool := NewPool(3)
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			c := newCounted(30, 1)
			pool.For(30, 1, c)
			c.check(t)
		})
		c := newCounted(30, 1)
		pool.For(30, 1, c)
		c.check(t)
	}
}

func TestSmallWorkIsDoneByTheCallerInOnePiece(t *testing.T) {
	c := newCounted(5, 5)
	For(5, 5, c)
	c.check(t)
	For(0, 5, c)
	require.EqualValues(t, 1, c.most.Load())
}

func TestThreadsAreOpenMPsOrGos(t *testing.T) {
	for _, c := range []struct {
		text string
		want int
		err  string
	}{
		{"", 8, ""}, {"3", 3, ""}, {" 2 ", 2, ""}, {"4,2", 4, ""}, {"1", 1, ""}, {"16384", 16384, ""},
		{"0", 8, "from 1 to 16384"}, {"-1", 8, "from 1"}, {"16385", 8, "from 1"}, {"many", 8, `OMP_NUM_THREADS="many" does not count: invalid syntax`},
		{",2", 8, "invalid syntax"}, {"99999999999999999999", 8, "out of range"},
	} {
		n, err := threads(c.text, 8)
		require.Equal(t, c.want, n, c.text)
		if c.err == "" {
			require.NoError(t, err, c.text)
		} else {
			require.ErrorContains(t, err, c.err)
		}
	}
	n, _ := Threads()
	require.Positive(t, n)
}

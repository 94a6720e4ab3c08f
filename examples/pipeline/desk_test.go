package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhoWaitsForTheDeskIsServedBackwardsFirstAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d desk
		first, err := d.waitTurn(t.Context(), forwards)
		require.NoError(t, err)
		var served []string
		for _, who := range []string{"f1", "b1", "f2", "b2"} {
			go func() {
				w := forwards
				if who[0] == 'b' {
					w = backwards
				}
				turn, err := d.waitTurn(t.Context(), w)
				if err == nil {
					served = append(served, who) // one at a time
					time.Sleep(time.Second)
					d.leave(turn)
				}
			}()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		d.leave(first)
		d.leave(first) // a turn that is over ends no other
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"b1", "b2", "f1", "f2"}, served)
		require.Equal(t, busy{Forward: 3, Backward: 2}, d.busy())
		require.Zero(t, d.busy(), "what was asked for is counted no more")
	})
}

func TestWhoGivesUpWaitingForTheDeskKeepsNobodyElseWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d desk
		first, err := d.waitTurn(t.Context(), backwards)
		require.NoError(t, err)
		why := errors.New("enough")
		c, give := context.WithCancelCause(t.Context())
		go func() {
			_, err := d.waitTurn(c, forwards)
			require.ErrorIs(t, err, why)
		}()
		synctest.Wait()
		give(why)
		synctest.Wait()
		d.leave(first)
		turn, err := d.waitTurn(t.Context(), forwards)
		require.NoError(t, err)
		d.leave(turn)
		d.done() // of nobody
	})
}

func TestNoTwoAreEverAtTheDeskAndEverybodyGetsThere(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			src := rand.New(rand.NewPCG(seed, 1))
			var d desk
			there := 0 // guarded by the desk
			var served, gone atomic.Int32
			for range 20 {
				after, stay, patience := time.Duration(src.IntN(50)), time.Duration(src.IntN(10)), time.Duration(1+src.IntN(100))
				w := work(src.IntN(int(works)))
				go func() {
					time.Sleep(after)
					c, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					turn, err := d.waitTurn(c, w)
					if err != nil {
						gone.Add(1)
						return
					}
					there++
					if there > 1 {
						panic("two at the desk")
					}
					time.Sleep(stay)
					there--
					served.Add(1)
					d.leave(turn)
				}()
			}
			time.Sleep(time.Second)
			synctest.Wait()
			require.EqualValues(t, 20, served.Load()+gone.Load(), "seed %d", seed)
			require.False(t, d.taken)
			require.False(t, slices.ContainsFunc(d.lines[:], func(l []chan int) bool { return len(l) > 0 }))
		})
	}
}

package collective

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective/internal/postbox"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/internal/thresholds"
	"github.com/weft-project/weft/rpc"
)

// filled is an array whose elements say whose and which it is.
func filled(n, from, nth int) []int64 {
	x := make([]int64, n)
	for i := range x {
		x[i] = int64(from)<<32 + int64(nth)<<16 + int64(i)
	}
	return x
}

// Each member sends each one, itself too, messages of all lengths with some tags, and receives them
// in goroutines of their own, one for each sender and tag.
func TestMessagesOfAllToAllArriveInTheOrderOfSendingOnEveryLane(t *testing.T) {
	const size, tags = 3, 2
	sizes := thresholds.Around(thresholds.Groups)
	for _, lane := range lanes() {
		t.Run(lane, func(t *testing.T) {
			gs := groups(t, onLane(t, size, lane), "g")
			cases := soak.Cases(30)
			lengths := make([]int, cases)
			for i := range lengths {
				threshold, side := sizes.Next()
				lengths[i] = threshold.Elems(8, side)
			}
			each(t, gs, func(r int) error {
				var all sync.WaitGroup
				errs := make(chan error, 2*size*tags)
				for other := range size {
					for tag := range tags {
						all.Go(func() {
							for nth := range cases {
								if err := Send(
									t.Context(), gs[r], other, tag, filled(lengths[nth], r, nth),
								); err != nil {
									errs <- err
									return
								}
							}
						})
						all.Go(func() {
							for nth := range cases {
								x, from, err := RecvNew[int64](t.Context(), gs[r], other, tag)
								n, first := lengths[nth], filled(1, other, nth)[0]
								if err == nil && (from != other || len(x) != n ||
									n > 0 && (x[0] != first || x[n-1] != first+int64(n)-1)) {
									err = fmt.Errorf("message %d of rank %d: %d elements of rank %d",
										nth, other, len(x), from)
								}
								if err != nil {
									errs <- err
									return
								}
							}
						})
					}
				}
				all.Wait()
				close(errs)
				return <-errs
			})
		})
	}
	require.Empty(t, sizes.Missing())
}

func TestAMessageOfAnyoneIsReceivedOnceAndSaysWhoSentIt(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 4), "g")
	const each4 = 50
	each(t, gs, func(r int) error {
		if r > 0 {
			for nth := range each4 {
				if err := Send(
					t.Context(), gs[r], 0, 7, filled(1+1000*(nth%5), r, nth),
				); err != nil {
					return err
				}
			}
			return nil
		}
		next := map[int]int{}
		for range 3 * each4 {
			x, from, err := RecvNew[int64](t.Context(), gs[0], Anyone, 7)
			if err != nil {
				return err
			}
			if want := filled(1, from, next[from])[0]; x[0] != want {
				return fmt.Errorf("rank %d: %x; expected %x", from, x[0], want)
			}
			next[from]++
		}
		return nil
	})
}

// Whoever receives first what was sent last gets it, be it small or large.
func TestTagsThatCrossDoNotHoldOneAnotherUp(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 2), "g")
	for _, n := range []int{1, 100000} {
		each(t, gs, func(r int) error {
			if r == 0 {
				var both sync.WaitGroup
				var errs [2]error
				for tag := range 2 {
					both.Go(func() {
						errs[tag] = Send(t.Context(), gs[0], 1, tag, filled(n, 0, tag))
					})
				}
				both.Wait()
				return errors.Join(errs[:]...)
			}
			for _, tag := range []int{1, 0} {
				x := make([]int64, n)
				if _, err := Recv(t.Context(), gs[1], 0, tag, x); err != nil {
					return err
				}
				if x[n-1] != filled(n, 0, tag)[n-1] {
					return fmt.Errorf("tag %d: %x", tag, x[n-1])
				}
			}
			return nil
		})
	}
}

func TestMessagesGoRoundARingWhereAllSendBeforeTheyReceive(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 5), "g")
	each(t, gs, func(r int) error {
		x := []int32{1}
		for range len(gs) {
			if err := Send(t.Context(), gs[r], (r+1)%len(gs), 0, x); err != nil {
				return err
			}
			if _, err := Recv(t.Context(), gs[r], (r+len(gs)-1)%len(gs), 0, x); err != nil {
				return err
			}
			x[0]++
		}
		if x[0] != int32(len(gs)+1) {
			return fmt.Errorf("%d went round", x[0])
		}
		return nil
	})
}

func TestAMessageOfAnotherLengthOrDtypeIsAnErrorAtBothEndsAndGone(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 2), "g")
	c := t.Context()
	for _, n := range []int{10, 100000} { // the sender waits for the receiver of the second
		for name, recv := range map[string]func() error{
			"length": func() error {
				_, err := Recv(c, gs[1], Anyone, 3, make([]float32, n+1))
				return err
			},
			"dtype": func() error { _, err := Recv(c, gs[1], 0, 3, make([]int32, n)); return err },
			"new":   func() error { _, _, err := RecvNew[float64](c, gs[1], 0, 3); return err },
		} {
			sent := make(chan error, 1)
			go func() { sent <- Send(c, gs[0], 1, 3, make([]float32, n)) }()
			err := recv()
			errs := []error{err}
			if err := <-sent; n > inlined {
				errs = append(errs, err)
			} else {
				require.NoError(t, err)
			}
			for _, err := range errs {
				var m *MessageError
				require.ErrorAs(t, err, &m, name)
				require.ErrorIs(t, err, ErrMismatch)
				require.Equal(t, [3]int{0, 1, 3}, [3]int{m.From, m.To, m.Tag})
				require.Contains(t, m.Sent, fmt.Sprintf("%d float32 at message_test.go:", n))
				require.Contains(t, m.Expected, "at message_test.go:")
			}
		}
	}
	each(t, gs, func(r int) error { // nothing is left over
		x := []float32{float32(r)}
		if r == 0 {
			return Send(c, gs[0], 1, 3, x)
		}
		_, err := Recv(c, gs[1], 0, 3, x)
		if err == nil && x[0] != 0 {
			err = fmt.Errorf("%v", x)
		}
		return err
	})
}

func TestWhatIsWrongWithAMessageIsSaid(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 2), "g")
	c := t.Context()
	require.ErrorIs(t, Send(c, gs[0], 2, 0, []int32{1}), ErrArguments)
	require.ErrorIs(t, Send(c, gs[0], Anyone, 0, []int32{1}), ErrArguments)
	_, err := Recv(c, gs[0], 2, 0, []int32{1})
	require.ErrorIs(t, err, ErrArguments)
	require.ErrorContains(t, err, "rank 2; the group has ranks 0 to 1")
	_, err = Recv(c, gs[0], -2, 0, []int32{1})
	require.ErrorIs(t, err, ErrArguments)
	soon, cancel := context.WithTimeout(c, time.Millisecond)
	defer cancel()
	_, err = Recv(soon, gs[0], Anyone, 0, []int32{1})
	require.ErrorContains(t, err, "passed before all data were there", "nobody has sent anything")
	require.NoError(t, gs[1].Close())
	require.ErrorIs(t, Send(c, gs[1], 0, 0, []int32{1}), ErrClosed)
	_, err = Recv(c, gs[1], 0, 0, []int32{1})
	require.ErrorIs(t, err, ErrClosed)
	for _, from := range []int{1, Anyone} {
		_, err = Recv(c, gs[0], from, 0, []int32{1})
		require.ErrorIs(t, err, ErrAborted, "it waits until it hears of it")
	}
	require.ErrorIs(t, Send(c, gs[0], 1, 0, []int32{1}), ErrAborted)
}

func TestWhatWasSentBeforeItsSenderClosedIsReceived(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 2)
	for i := range soak.Cases(20) {
		gs := groups(t, ws, fmt.Sprint("g", i))
		each(t, gs, func(r int) error {
			x := []int32{int32(i)}
			if r == 0 {
				return errors.Join(Send(t.Context(), gs[0], 1, 0, x), gs[0].Close())
			}
			_, err := Recv(t.Context(), gs[1], 0, 0, x)
			return err
		})
	}
}

func TestASenderThatIsLostFailsItsReceiversWithItsName(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 3)
	gs := groups(t, ws, "g")
	ends := make(chan error, 3)
	go func() { _, err := Recv(t.Context(), gs[0], 2, 0, []int32{1}); ends <- err }()
	go func() { _, err := Recv(t.Context(), gs[0], Anyone, 1, []int32{1}); ends <- err }()
	go func() { ends <- Send(t.Context(), gs[1], 2, 0, make([]int32, 100000)) }()
	require.NoError(t, ws[2].Close())
	for range 3 {
		var lost *LostError
		require.ErrorAs(t, <-ends, &lost)
		require.Equal(t, ws[2].Name(), lost.Worker)
	}
}

func TestAReceiveThatIsGivenUpLeavesTheMessageToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := rpctest.World(t, rpctest.SlowNet(10*time.Millisecond), 2)
		gs := groups(t, ws, "g")
		for _, n := range []int{10, 50000} {
			sent := make(chan error, 1)
			c, cancel := context.WithTimeout(t.Context(), 35*time.Millisecond)
			_, err := Recv(c, gs[1], 0, 0, make([]int64, n))
			cancel()
			var late *LateError
			require.ErrorAs(t, err, &late)
			require.ErrorIs(t, err, rpc.ErrTimeout)
			require.Equal(t, []string{ws[0].Name()}, late.Missing)
			go func() { sent <- Send(t.Context(), gs[0], 1, 0, filled(n, 0, n)) }()
			c, cancel = context.WithTimeout(t.Context(), 15*time.Millisecond) // while its bytes are on their way
			_, _, err = RecvNew[int64](c, gs[1], 0, 0)
			cancel()
			if n > inlined {
				require.ErrorIs(t, err, rpc.ErrTimeout)
				x := make([]int64, n)
				_, err = Recv(t.Context(), gs[1], Anyone, 0, x)
				require.Equal(t, filled(n, 0, n), x)
			}
			require.NoError(t, err)
			require.NoError(t, <-sent)
		}
	})
}

func TestASendThatIsGivenUpIsNeverReceivedAndNothingWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := groups(t, rpctest.World(t, rpctest.SlowNet(10*time.Millisecond), 2), "g")
		for after := range 9 { // it is on its way, offered, wanted, half there
			got := make(chan int64, 1)
			go func() {
				x, _, err := RecvNew[int64](t.Context(), gs[1], 0, 0)
				if err == nil {
					got <- x[0]
				}
			}()
			c, cancel := context.WithTimeout(t.Context(), time.Duration(5*after)*time.Millisecond)
			err := Send(c, gs[0], 1, 0, filled(100000, 1, 1))
			cancel()
			require.ErrorIs(t, err, rpc.ErrTimeout)
			require.NoError(t, Send(t.Context(), gs[0], 1, 0, []int64{5}))
			require.Equal(t, int64(5), <-got, "after %d ms", 5*after)
		}
	})
}

// A member that does not receive holds no more than the window of each other one. Who sends more
// waits for its own message to be received, and nothing else waits.
func TestWhatWaitsAtAReceiverIsBoundedInBytesAndHoldsUpNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := groups(t, rpctest.World(t, rpctest.SlowNet(time.Millisecond), 2), "g")
		c := t.Context()
		const n = inlined / 8
		fit := postbox.Window / postbox.Cost(inlined)
		for k := range fit { // they do not wait
			require.NoError(t, Send(c, gs[0], 1, 1, filled(n, 0, k)))
		}
		ends := make(chan error, 10)
		for range cap(ends) {
			go func() { ends <- Send(c, gs[0], 1, 1, filled(n, 0, fit)) }()
		}
		each(t, gs, func(r int) error { // operations and other tags go on
			err := gs[r].Barrier(c)
			if r == 0 {
				return errors.Join(err, Send(c, gs[0], 1, 2, []int32{1}))
			}
			_, later := Recv(c, gs[1], 0, 2, make([]int32, 1))
			return errors.Join(err, later)
		})
		synctest.Wait()
		require.Empty(t, ends)
		held := func() int {
			g := gs[0]
			g.mu.Lock()
			defer g.mu.Unlock()
			return int(g.talk.peers[1].ahead - g.talk.peers[1].taken)
		}
		require.LessOrEqual(t, held(), postbox.Window)
		require.Greater(t, held(), postbox.Window-postbox.Cost(inlined))
		for k := range fit + cap(ends) {
			x := make([]int64, n)
			_, err := Recv(c, gs[1], 0, 1, x)
			require.NoError(t, err)
			require.Equal(t, filled(n, 0, min(k, fit)), x)
		}
		for range cap(ends) {
			require.NoError(t, <-ends)
		}
		synctest.Wait()
		time.Sleep(time.Second) // of the bubble's clock: all that is on its way arrives
		require.Less(t, held(), postbox.Window/4)
	})
}

// A member that does not keep to the window is lost, as one that says what cannot be.
func TestWhoSendsMoreThanItMayIsThrownOut(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 2), "g")
	n := note{
		Slots: []notePart{{Tensor: -1, N: inlined}}, inline: []part{{mem: make([]byte, inlined)}},
	}
	for seq := range uint64(postbox.Window/postbox.Cost(inlined) + 1) {
		n.Talk = &noteTalk{
			What: talkSends, Seq: seq, Parcel: parcel{Dtype: device.Int32, Count: inlined / 4},
		}
		_ = gs[0].post(t.Context(), 1, &n) // it may be over already
	}
	_, err := Recv(t.Context(), gs[1], 0, 1, []int32{0})
	require.ErrorIs(t, err, ErrLost)
	require.ErrorContains(t, err, "a member has sent more than it may")
}

func TestRandomMessagesOfAnyoneArriveInTheOrderOfTheirSenders(t *testing.T) {
	const size, tags, count = 4, 3, 21
	gs := groups(t, rpctest.World(t, rpctest.Net(), size), "g")
	for seed := range uint64(soak.Cases(10)) {
		each(t, gs, func(r int) error {
			var all sync.WaitGroup
			errs := make(chan error, 2*tags)
			for tag := range tags {
				src := rand.New(rand.NewPCG(seed, uint64(r*tags+tag)))
				all.Go(func() {
					for nth := range count {
						if err := Send(
							t.Context(), gs[r], (r+1+nth%3)%size, tag,
							filled(1+src.IntN(1<<src.IntN(14)), r, 1+nth),
						); err != nil {
							errs <- err
							return
						}
					}
				})
				all.Go(func() {
					last := map[int]int64{}
					for range count { // a third of each of three
						x, from, err := RecvNew[int64](t.Context(), gs[r], Anyone, tag)
						if err == nil && (x[0] <= last[from] || int(x[0]>>32) != from) {
							err = fmt.Errorf("rank %d: %x after %x", from, x[0], last[from])
						}
						if err != nil {
							errs <- err
							return
						}
						last[from] = x[0]
					}
				})
			}
			all.Wait()
			close(errs)
			return <-errs
		})
	}
}

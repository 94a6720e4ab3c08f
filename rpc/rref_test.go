package rpc

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

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/rpc/internal/refs"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/simnet"
)

// box is what a worker keeps between calls.
type box struct {
	mu sync.Mutex
	r  RRef[int]
}

var (
	constant = Define("constant", func(_ context.Context, n int) (int, error) { return n, nil })
	readRef  = Define("read ref", func(c context.Context, r RRef[int]) (int, error) {
		defer r.Release()
		return r.ToHere(c)
	})
	passOn = Define("pass on", func(_ context.Context, r RRef[int]) (RRef[int], error) { return r, nil })
	makeOn = Define("make on", func(c context.Context, to string) (RRef[int], error) { return constant.Remote(c, to, 7), nil })
	refuse = Define("refuse", func(_ context.Context, r RRef[int]) (int, error) {
		r.Release()
		return 0, errors.New("refused it")
	})
)

var refFunctions = serve(constant, readRef, passOn, makeOn, refuse)

func TestAReferenceGoesToItsOwnerToAThirdWorkerAndBack(t *testing.T) {
	ws := sim(t, 3, refFunctions)
	c := ws[0].Context(t.Context())
	for _, owner := range []string{"worker0", "worker1", "worker2"} {
		r := constant.Remote(c, owner, 5)
		for _, to := range []string{"worker0", "worker1", "worker2"} {
			n, err := readRef.Call(c, to, r)
			require.NoError(t, err)
			require.Equal(t, 5, n)
			back, err := passOn.Call(c, to, r)
			require.NoError(t, err)
			require.Equal(t, owner, back.Owner())
			require.Equal(t, r.String(), back.String())
			n, err = back.ToHere(c)
			require.NoError(t, err)
			require.Equal(t, 5, n)
			back.Release()
		}
		r.Release()
	}
	for _, w := range ws {
		collected(t, "all is dropped", func() bool { return w.Owned() == 0 })
	}
}

func TestAReferenceToAThirdWorkersValueIsReturned(t *testing.T) {
	ws := sim(t, 3, refFunctions)
	c := ws[0].Context(t.Context())
	for _, owner := range []string{"worker0", "worker1", "worker2"} {
		r, err := makeOn.Call(c, "worker1", owner)
		require.NoError(t, err)
		require.Equal(t, owner, r.Owner())
		n, err := r.ToHere(c)
		require.NoError(t, err)
		require.Equal(t, 7, n)
		r.Release()
	}
	for _, w := range ws {
		collected(t, "all is dropped", func() bool { return w.Owned() == 0 })
	}
}

func TestAReferenceIsForwardedThroughAChainOfWorkers(t *testing.T) {
	var forward *Func[chained, int]
	forward = Define("forward", func(c context.Context, in chained) (int, error) {
		defer in.R.Release()
		if in.TTL == 0 {
			return in.R.ToHere(c)
		}
		w, _ := FromContext(c)
		return forward.Call(c, fmt.Sprintf("worker%d", (w.Rank()+1)%w.WorldSize()), chained{in.R, in.TTL - 1})
	})
	ws := sim(t, 4, serve(forward, constant))
	c := ws[0].Context(t.Context())
	r := constant.Remote(c, "worker2", 9)
	n, err := forward.Call(c, "worker1", chained{r, 8})
	require.NoError(t, err)
	require.Equal(t, 9, n)
	require.Equal(t, 1, ws[2].Owned())
	r.Release()
	owns(t, ws[2], 0)
}

type chained struct {
	R   RRef[int]
	TTL int
}

func TestTheOwnersCountGoesUpAndDownWithTheReferences(t *testing.T) {
	ws := sim(t, 2, refFunctions)
	c := ws[0].Context(t.Context())
	var refs []RRef[int]
	for i := range 5 {
		r := constant.Remote(c, "worker1", i)
		require.NoError(t, r.Ready(c))
		refs = append(refs, r)
		require.Equal(t, i+1, ws[1].Owned())
	}
	for i, r := range refs {
		r.Release()
		r.Release()
		owns(t, ws[1], 4-i)
	}
	mine, err := NewRRef(c, 3)
	require.NoError(t, err)
	require.Equal(t, 1, ws[0].Owned())
	copied := mine
	copied.Release()
	require.Zero(t, ws[0].Owned(), "copies share one count")
	_, err = mine.LocalValue(c)
	require.ErrorIs(t, err, ErrReleased)
}

func TestEveryUseAfterReleaseFails(t *testing.T) {
	ws := sim(t, 2, refFunctions)
	c := ws[0].Context(t.Context())
	r := constant.Remote(c, "worker1", 1)
	require.NoError(t, r.Ready(c))
	r.Release()
	_, err := r.ToHere(c)
	require.ErrorIs(t, err, ErrReleased)
	require.ErrorContains(t, err, "RRef(worker1, 0.")
	_, err = r.LocalValue(c)
	require.ErrorIs(t, err, ErrReleased)
	_, err = readRef.Call(c, "worker1", r)
	require.ErrorIs(t, err, ErrReleased)
	require.ErrorIs(t, r.Ready(c), ErrReleased)
	var none RRef[int]
	none.Release()
	require.Equal(t, "RRef(none)", none.String())
	require.Empty(t, none.Owner())
	_, err = none.ToHere(c)
	require.ErrorIs(t, err, ErrReleased)
	back, err := passOn.Call(c, "worker1", none)
	require.NoError(t, err, "the reference to nothing travels")
	require.Equal(t, none, back)
}

func TestAReferenceReleasedDuringACallThatCarriesItStaysGoodForThatCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, _ := simWith(t, 3, simnet.Config{MinDelay: time.Millisecond}, refFunctions)
		c := ws[0].Context(t.Context())
		for _, settled := range []bool{true, false} {
			r := constant.Remote(c, "worker2", 4)
			if settled {
				require.NoError(t, r.Ready(c))
			}
			f := readRef.Async(c, "worker1", r)
			r.Release() // reaches worker2 before worker1 asks for its share, if it is not kept back
			n, err := f.Wait(c)
			require.NoError(t, err)
			require.Equal(t, 4, n)
			time.Sleep(time.Second)
			require.Zero(t, ws[2].Owned())
		}
	})
}

func TestAValueWhoseCallerGaveUpBeforeTheAnswerCameIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, _ := simWith(t, 2, simnet.Config{MinDelay: time.Second}, refFunctions)
		c, cancel := context.WithTimeout(ws[0].Context(t.Context()), 1500*time.Millisecond)
		defer cancel()
		r := constant.Remote(c, "worker1", 1)
		require.ErrorIs(t, r.Ready(t.Context()), ErrTimeout)
		require.Equal(t, 1, ws[1].Owned(), "its answer is on the way")
		time.Sleep(10 * time.Second)
		require.Zero(t, ws[1].Owned())
	})
}

func TestAValueIsNamedOnceAndByItsCreator(t *testing.T) {
	ws := sim(t, 2, refFunctions)
	ask := func(kind uint8, header any) error {
		link, err := ws[0].members.PeerAt(1).Connection(t.Context())
		require.NoError(t, err)
		reply, err := exchange(t.Context(), link, &transport.Message{Kind: kind, Header: rawHeader(t, header)}, nil)
		require.NoError(t, err)
		return answered(reply)
	}
	here, there := ws[0].refs.me, ws[1].refs.me
	call := wire.CallHeader{Function: "constant", Args: []byte{1}, Ref: &refs.ID{Owner: there, By: here, N: 77}}
	require.NoError(t, ask(wire.KindCall, call))
	require.Equal(t, 1, ws[1].Owned())
	require.ErrorIs(t, ask(wire.KindCall, call), ErrProtocol, "a name that is in use")
	for name, id := range map[string]refs.ID{
		"the name of another's value":  {Owner: there, By: there, N: 78},
		"a value of another owner":     {Owner: here, By: here, N: 78},
		"a value of an earlier life":   {Owner: refs.Node{Rank: 1, Epoch: 1}, By: here, N: 78},
		"a creator of an earlier life": {Owner: there, By: refs.Node{Rank: 0, Epoch: 1}, N: 78},
		"a value without a number":     {Owner: there, By: here},
	} {
		call.Ref = &id
		require.ErrorIs(t, ask(wire.KindCall, call), ErrProtocol, name)
	}
	mine, err := NewRRef(ws[1].Context(t.Context()), 1)
	require.NoError(t, err)
	tell := func(msg refs.Message) {
		require.NoError(t, ask(wire.KindRefs, wire.RefsHeader{Messages: []refs.Message{msg}}))
	}
	tell(refs.Message{Op: refs.Delete, N: mine.id.N})
	require.Equal(t, 2, ws[1].Owned(), "only the holder gives a share back")
	mine.Release()
	tell(refs.Message{Op: refs.Delete, N: 77})
	tell(refs.Message{Op: refs.Delete, N: 77})
	require.Zero(t, ws[1].Owned())
	require.ErrorIs(t, ask(wire.KindRefs, wire.RefsHeader{Messages: make([]refs.Message, 1000)}), ErrProtocol, "more than a worker sends at once")
	_, err = readRef.Call(ws[0].Context(t.Context()), "worker1", RRef[int]{ws[0].refs.newRef(99, refs.ID{Owner: refs.Node{Rank: -5}}, true)})
	require.ErrorIs(t, err, ErrReleased)
}

func TestAReferenceReleasedBeforeItsValueExistsLeavesNothing(t *testing.T) {
	gate := make(chan struct{})
	slow := gated(gate)
	ws := sim(t, 2, serve(slow))
	c := ws[0].Context(t.Context())
	for _, to := range []string{"worker0", "worker1"} {
		r := slow.Remote(c, to, 0)
		r.Release()
		require.ErrorIs(t, r.Ready(c), ErrReleased)
	}
	close(gate)
	for _, w := range ws {
		require.NoError(t, w.load.Idle(c, false))
		owns(t, w, 0)
	}
}

func TestAForgottenReferenceIsReleasedByTheCollector(t *testing.T) {
	ws := sim(t, 2, refFunctions)
	func() {
		c := ws[0].Context(t.Context())
		for _, to := range []string{"worker0", "worker1"} {
			r := constant.Remote(c, to, 1)
			_, err := r.ToHere(c)
			require.NoError(t, err)
		}
		_, err := NewRRef(c, 1)
		require.NoError(t, err)
	}()
	collected(t, "the owners drop", func() bool { return ws[0].Owned() == 0 && ws[1].Owned() == 0 })
}

func TestARemoteWhoseTensorCarriesAnErrorHasFailed(t *testing.T) {
	ws := sim(t, 2, serve(addFn))
	c := ws[0].Context(t.Context())
	r := addFn.Remote(c, "worker1", pair{autodiff.Rand(2), autodiff.Rand(3)})
	require.ErrorIs(t, r.Ready(c), kernels.ErrOperands)
	require.Zero(t, ws[1].Owned())
}

func TestAFailedRemoteFailsWhoeverUsesItsReference(t *testing.T) {
	fail := Define("fail", func(context.Context, int) (int, error) { return 0, errors.New("no luck") })
	ws := sim(t, 2, serve(fail, readRef))
	c := ws[0].Context(t.Context())
	for _, to := range []string{"worker0", "worker1"} {
		r := fail.Remote(c, to, 0)
		for range 2 {
			require.ErrorContains(t, r.Ready(c), "no luck")
		}
		_, err := r.ToHere(c)
		require.ErrorContains(t, err, "no luck")
		_, err = r.LocalValue(c)
		require.ErrorContains(t, err, "no luck")
		_, err = readRef.Call(c, "worker1", r)
		require.ErrorContains(t, err, "no luck")
		r.Release()
	}
	for _, w := range ws {
		require.Zero(t, w.Owned())
	}
}

func TestSharesOfCallsThatFailAreTakenBack(t *testing.T) {
	gate := make(chan struct{})
	stuck := Define("stuck", func(c context.Context, r RRef[int]) (int, error) { r.Release(); <-c.Done(); return 0, c.Err() })
	returns := Define("returns", func(c context.Context, _ int) (RRef[int], error) {
		r, err := NewRRef(c, 1)
		if err == nil {
			select {
			case <-gate:
			case <-c.Done():
			}
		}
		return r, err
	})
	other := Define("returns", func(context.Context, int) (int, error) { return 0, nil })
	ws := sim(t, 2, serve(stuck, refuse, returns))
	c := ws[0].Context(t.Context())
	r, err := NewRRef(c, 1)
	require.NoError(t, err)
	forks := func() int { return ws[0].References().Forks }
	_, err = readRef.Call(c, "worker1", r)
	require.ErrorIs(t, err, ErrNotServed)
	eventually(t, "the function was not served", func() bool { return forks() == 1 })
	_, err = refuse.Call(c, "worker1", r)
	require.ErrorContains(t, err, "refused it")
	eventually(t, "the callee gave its share back", func() bool { return forks() == 1 })
	soon, cancel := context.WithTimeout(c, 20*time.Millisecond)
	_, err = stuck.Call(soon, "worker1", r)
	require.ErrorIs(t, err, ErrTimeout)
	cancel()
	eventually(t, "the timed-out call's share is gone", func() bool { return forks() == 1 })
	r.Release()
	require.Zero(t, ws[0].Owned())

	// The answer's shares, when the caller cannot take the answer.
	soon, cancel = context.WithTimeout(c, 20*time.Millisecond)
	_, err = returns.Call(soon, "worker1", 0)
	require.ErrorIs(t, err, ErrTimeout)
	cancel()
	close(gate)
	_, err = other.Call(c, "worker1", 0)
	require.ErrorIs(t, err, ErrArguments)
	collected(t, "nothing is kept", func() bool { return ws[1].Owned() == 0 })
}

func TestALostWorkersSharesAreDropped(t *testing.T) {
	keep := &box{}
	store := Define("store", func(_ context.Context, r RRef[int]) (int, error) {
		keep.mu.Lock()
		defer keep.mu.Unlock()
		keep.r = r
		return 0, nil
	})
	ws, net := simWith(t, 3, simnet.Config{Detect: 20 * time.Millisecond}, serve(store, constant, readRef))
	c := ws[0].Context(t.Context())
	mine, err := NewRRef(c, 1)
	require.NoError(t, err)
	_, err = store.Call(c, "worker1", mine)
	require.NoError(t, err)
	mine.Release()
	require.Equal(t, 1, ws[0].Owned(), "worker1 holds a share")
	theirs := constant.Remote(ws[1].Context(t.Context()), "worker2", 2)
	require.NoError(t, theirs.Ready(t.Context()))
	require.Equal(t, 1, ws[2].Owned())
	net.Kill("host1")
	owns(t, ws[0], 0)
	owns(t, ws[2], 0)
	keep.mu.Lock()
	defer keep.mu.Unlock()
	keep.r.Release()
	theirs.Release()
}

func TestTensorsInAReferenceAreFetchedAndReadInPlace(t *testing.T) {
	give := Define("give", func(_ context.Context, x *autodiff.Tensor) (map[string]*autodiff.Tensor, error) {
		return map[string]*autodiff.Tensor{"x": x, "again": x}, nil
	})
	ws := sim(t, 2, serve(give))
	c := ws[0].Context(t.Context())
	x := autodiff.Rand(2, 3)
	r := give.Remote(c, "worker1", x)
	got, err := r.ToHere(c)
	require.NoError(t, err)
	sameTensors(t, x, got["x"])
	require.Same(t, got["x"], got["again"])
	self := give.Remote(c, "worker0", x)
	require.NoError(t, self.Ready(c))
	one, err := self.LocalValue(c)
	require.NoError(t, err)
	two, err := self.LocalValue(c)
	require.NoError(t, err)
	require.Same(t, one["x"], two["x"], "it is the value itself")
	r.Release()
	self.Release()
}

func TestAReferenceReadsAsTheTypeThatItHasOrFails(t *testing.T) {
	ws := sim(t, 2, refFunctions)
	c := ws[0].Context(t.Context())
	for _, to := range []string{"worker0", "worker1"} {
		r := constant.Remote(c, to, 3)
		_, err := RRef[string]{r.ref}.ToHere(c)
		require.ErrorIs(t, err, ErrArguments)
		if to == "worker0" {
			_, err = RRef[string]{r.ref}.LocalValue(c)
			require.ErrorContains(t, err, "the value is a int, not a string")
		}
		r.Release()
	}
}

// Random workers make, share, read and release references; whatever the order, every read gives the
// value and nothing is kept in the end.
func TestRandomSharingAlwaysReadsTheValueAndKeepsNothing(t *testing.T) {
	ws, _ := simWith(t, 4, simnet.Config{Seed: 3, MaxDelay: 200 * time.Microsecond}, refFunctions)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(9, uint64(g)))
			c := ws[g].Context(t.Context())
			anyone := func() string { return fmt.Sprintf("worker%d", r.IntN(4)) }
			for i := range 15 {
				ref := constant.Remote(c, anyone(), i)
				for range r.IntN(4) {
					n, err := readRef.Call(c, anyone(), ref)
					if err != nil || n != i {
						t.Errorf("read %d: %d, %v", i, n, err)
					}
					other, err := passOn.Call(c, anyone(), ref)
					if err != nil {
						t.Errorf("pass on: %v", err)
						continue
					}
					ref.Release()
					ref = other
				}
				ref.Release()
			}
		})
	}
	wg.Wait()
	for _, w := range ws {
		collected(t, "nothing is kept", func() bool { return w.Owned() == 0 })
	}
}

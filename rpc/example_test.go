package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// world joins n workers of one process. In a program each is a process of its own, weft run says
// where the store is, and rpc.Join(c, rpc.Config{Functions: …}) is all.
func world(n int, cfg rpc.Config) []*rpc.Worker {
	workers := make([]*rpc.Worker, n)
	cfg.Store, cfg.WorldSize, cfg.Token = store.NewMemory(), n, transport.NewToken()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			own, err := cfg, error(nil)
			own.Rank = i
			if workers[i], err = rpc.Join(context.Background(), own); err != nil {
				panic(err)
			}
		})
	}
	wg.Wait()
	return workers
}

// leave has all leave in good order.
func leave(workers ...*rpc.Worker) {
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(func() {
			if err := w.Leave(context.Background()); err != nil {
				fmt.Println(err)
			}
		})
	}
	wg.Wait()
}

// A function is called in three ways: with its result at once, later, or left where it was made.
func Example() {
	type order struct {
		Item  string
		Count int
	}
	price := rpc.Define("price", func(_ context.Context, o order) (int, error) { return 3 * o.Count, nil })
	half := rpc.Define("half", func(c context.Context, of rpc.RRef[int]) (int, error) {
		n, err := of.ToHere(c)
		return n / 2, err
	})
	w := world(3, rpc.Config{Functions: []rpc.Function{price, half}})
	defer leave(w...)
	c := w[0].Context(context.Background())

	fmt.Println(price.Call(c, "worker1", order{"tea", 2}))

	later := price.Async(c, "worker1", order{"rice", 5})
	fmt.Println(later.Wait(c))

	stays := price.Remote(c, "worker1", order{"salt", 8})
	defer stays.Release()
	fmt.Println(half.Call(c, "worker2", stays)) // worker2 fetches the value from worker1
	// Output:
	// 6 <nil>
	// 15 <nil>
	// 12 <nil>
}

// A function that waits for something gives a future: no goroutine waits with it, nor is a place
// among MaxRunning taken.
func ExampleDefineAsync() {
	door := rpc.NewPromise[string]("the door")
	enter := rpc.DefineAsync("enter", func(_ context.Context, name string) (*rpc.Future[string], error) {
		return rpc.Then(door.Future(), func(state string) (string, error) { return name + " finds it " + state, nil }), nil
	})
	open := rpc.Define("open", func(context.Context, struct{}) (struct{}, error) { return struct{}{}, door.Resolve("open") })
	w := world(2, rpc.Config{Functions: []rpc.Function{enter, open}, MaxRunning: 1})
	defer leave(w...)
	c := w[0].Context(context.Background())

	ann, ben := enter.Async(c, "worker1", "Ann"), enter.Async(c, "worker1", "Ben")
	if _, err := open.Call(c, "worker1", struct{}{}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(rpc.WaitAll(c, ann, ben))
	// Output: [Ann finds it open Ben finds it open] <nil>
}

// tooMuch is an error with something to read.
type tooMuch struct{ Asked, Left int }

func (e *tooMuch) Error() string { return fmt.Sprintf("%d asked, %d left", e.Asked, e.Left) }

// An error whose type both workers list comes back as itself; any other as a RemoteError with its
// text.
func ExampleErrorType() {
	take := rpc.Define("take", func(_ context.Context, n int) (int, error) {
		if n > 3 {
			return 0, &tooMuch{n, 3}
		}
		return n, nil
	})
	w := world(2, rpc.Config{Functions: []rpc.Function{take}, Errors: []rpc.TypedError{rpc.ErrorType[*tooMuch]("shop.tooMuch")}})
	defer leave(w...)

	_, err := take.Call(w[0].Context(context.Background()), "worker1", 5)
	if much, ok := errors.AsType[*tooMuch](err); ok {
		fmt.Println("take", much.Left, "instead:", err)
	}
	// Output: take 3 instead: worker0: take on worker1: error on worker1: 5 asked, 3 left
}

// Workers of a dynamic world come and go. Here one process hosts the store, and each worker dials
// it.
func Example_dynamic() {
	c, token := context.Background(), transport.NewToken()
	srv, err := store.Serve(store.ServerConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer srv.Close()
	square := rpc.Define("square", func(_ context.Context, n int) (int, error) { return n * n, nil })
	join := func(name string) (w *rpc.Worker, leaves func()) {
		st, err := store.Dial(c, store.ClientConfig{Addr: srv.Addr()})
		if err != nil {
			panic(err)
		}
		w, err = rpc.Join(c, rpc.Config{Name: name, Dynamic: true, Store: st, Token: token, Functions: []rpc.Function{square}})
		if err != nil {
			panic(err)
		}
		return w, func() { leave(w); st.Close() }
	}
	first, leaves := join("first")
	defer leaves()
	peers := first.Peers(c) // begins with first itself
	_, leaves = join("second")
	fmt.Println(square.Call(first.Context(c), "second", 7))
	leaves()
	for e := range peers {
		if e.Name == "second" && e.Change != rpc.PeerLinked {
			fmt.Println(e.Name, e.Change)
		}
		if e.Change == rpc.PeerHasLeft {
			break
		}
	}
	// Output:
	// 49 <nil>
	// second joined
	// second leaving
	// second left
}

package store_test

import (
	"context"
	"fmt"

	"github.com/weft-project/weft/store"
)

// Two workers meet: one hosts the store, both are its clients.
func Example() {
	c := context.Background()
	srv, err := store.Serve(store.ServerConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer srv.Close()
	alice, _ := store.Dial(c, store.ClientConfig{Addr: srv.Addr()})
	bob, _ := store.Dial(c, store.ClientConfig{Addr: srv.Addr()})
	defer alice.Close()
	defer bob.Close()

	go alice.Set(c, "address of alice", []byte("10.0.0.1:7000"))
	where, err := bob.Get(c, "address of alice") // waits for it
	fmt.Println(string(where), err)
	// Output: 10.0.0.1:7000 <nil>
}

func ExampleNewPrefix() {
	c := context.Background()
	all := store.NewMemory()
	run := store.NewPrefix("run-7", all)
	run.Set(c, "leader", []byte("worker0"))
	v, _ := all.Get(c, "run-7/leader")
	fmt.Println(string(v))
	// Output: worker0
}

// One worker hands out work, and whoever is free takes it.
func ExampleStore_queue() {
	c := context.Background()
	var s store.Store = store.NewMemory()
	for _, shard := range []string{"shard 0", "shard 1"} {
		s.Push(c, "work", []byte(shard))
	}
	for range 2 {
		work, _ := s.Pop(c, "work") // waits for some
		fmt.Println(string(work))
	}
	// Output:
	// shard 0
	// shard 1
}

// A Watch tells every change from when it begins.
func ExampleStore_watch() {
	c := context.Background()
	var s store.Store = store.NewMemory()
	w, err := s.Watch(c, "epoch")
	if err != nil {
		fmt.Println(err)
		return
	}
	s.Add(c, "epoch", 1)
	s.Add(c, "epoch", 1)
	s.Delete(c, "epoch")
	for range 3 {
		ch := <-w.C
		fmt.Printf("%v %q %q\n", ch.Kind, ch.Old, ch.New)
	}
	w.Stop()
	// Output:
	// created "" "1"
	// updated "1" "2"
	// deleted "2" ""
}

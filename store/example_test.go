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

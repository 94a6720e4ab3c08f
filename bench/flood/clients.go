//go:build linux

package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// clients use the store of a job, which they and the server share the identity of.
type clients struct {
	at     string
	id     *transport.Identity
	server *store.Server
	ends   [2]store.Store
	came   atomic.Int64
}

// startClients starts a store, which is what is flooded, and says where it is.
func startClients() (*job, string, error) {
	id, err := transport.IdentityFromToken(transport.NewToken(), rpc.NoJob, "store", time.Now)
	if err != nil {
		return nil, "", err
	}
	x := &clients{id: id}
	if x.server, err = store.Serve(store.ServerConfig{TLS: id.StoreTLS()}); err != nil {
		return nil, "", err
	}
	x.at = x.server.Addr()
	c, end := context.WithCancel(context.Background())
	var calls []func(context.Context) error
	for i := range x.ends {
		if x.ends[i], err = x.open(c); err != nil {
			end()
			return nil, "", err
		}
		calls = append(calls, func(c context.Context) error {
			_, err := x.ends[i].Add(c, fmt.Sprint("calls ", i), 1)
			return err
		})
	}
	j := &job{end: end, close: x.Close}
	j.startCalls(c, calls, x.come)
	return j, x.at, nil
}

func (x *clients) Close() error {
	for _, s := range x.ends {
		_ = s.Close() // the error tells, where there is one
	}
	return x.server.Close()
}

func (x *clients) open(c context.Context) (store.Store, error) {
	return store.Dial(c, store.ClientConfig{Addr: x.at, TLS: x.id.StoreTLS()})
}

// come opens the store and writes a key.
func (x *clients) come(c context.Context) (time.Duration, error) {
	from := time.Now()
	s, err := x.open(c)
	if err != nil {
		return time.Since(from), err
	}
	err = s.Set(c, "newcomer", fmt.Append(nil, x.came.Add(1)))
	took := time.Since(from)
	_ = s.Close() // it has said what it had to
	return took, err
}

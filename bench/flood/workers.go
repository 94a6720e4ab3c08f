//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

var double = rpc.Define("double", func(_ context.Context, n int) (int, error) { return 2 * n, nil })

// workers call each other over one lane, and others join them.
type workers struct {
	st    store.Store
	at    string // where the first one listens
	lane  string
	token string
	ws    [2]*rpc.Worker
}

// startWorkers starts a job. Its first worker is what is flooded.
func startWorkers(lane string) (*job, *workers, error) {
	at, err := freePort()
	if err != nil {
		return nil, nil, err
	}
	x := &workers{st: store.NewMemory(), at: at, lane: lane, token: transport.NewToken()}
	c, end := context.WithCancel(context.Background())
	for i, listen := range []string{at, "127.0.0.1:0"} {
		if x.ws[i], err = x.join(c, listen); err != nil {
			end()
			return nil, nil, err
		}
	}
	var calls []func(context.Context) error
	for i, w := range x.ws {
		call := func(c context.Context) error {
			_, err := double.Call(w.Context(c), x.ws[1-i].Name(), 1)
			return err
		}
		calls = append(calls, call, call)
	}
	j := &job{end: end, close: x.Close}
	j.startCalls(c, calls, x.come)
	return j, x, nil
}

func (x *workers) Close() error {
	for _, w := range x.ws {
		_ = w.Close() // the error tells, where there is one
	}
	return x.st.Close()
}

func (x *workers) join(c context.Context, listen string) (*rpc.Worker, error) {
	return rpc.Join(c, rpc.Config{
		Store: x.st, Dynamic: true, Token: x.token, Listen: listen, Lanes: []string{x.lane, transport.LaneQUIC}, Functions: []rpc.Function{double},
		Logger: slog.New(slog.DiscardHandler),
	})
}

// come dials, joins, calls and leaves.
func (x *workers) come(c context.Context) (time.Duration, error) {
	took, err := x.dial(c)
	if err != nil {
		return took, err
	}
	w, err := x.join(c, "127.0.0.1:0")
	if err != nil {
		return took, err
	}
	_, err = double.Call(w.Context(c), x.ws[0].Name(), 1)
	_ = w.Close() // the job goes on
	return took, err
}

// newcomer is a member that the flooded worker has not met.
func (x *workers) newcomer() (transport.Network, error) {
	id, err := transport.IdentityFromToken(x.token, rpc.NoJob, "newcomer", time.Now)
	if err != nil {
		return nil, err
	}
	return transport.New(transport.Config{Identity: id, Lanes: []string{x.lane, transport.LaneQUIC}})
}

// dial links with the flooded worker.
func (x *workers) dial(c context.Context) (time.Duration, error) {
	n, err := x.newcomer()
	if err != nil {
		return 0, err
	}
	from := time.Now()
	link, err := n.Dial(c, x.at)
	took := time.Since(from)
	if err != nil {
		return took, err
	}
	for _, lane := range link.Lanes() {
		if lane.Name == x.lane && lane.Why != "" {
			err = fmt.Errorf("no lane %s: %s", x.lane, lane.Why)
		}
	}
	return took, errors.Join(err, link.Close("only dialled"))
}

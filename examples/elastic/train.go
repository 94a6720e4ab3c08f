package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/elastic/checkpoint"
	"github.com/weft-project/weft/examples/internal/table"
	"github.com/weft-project/weft/rpc"
)

// trainer is one worker, for the life of its process.
type trainer struct {
	settings
	data  *table.Data
	saved *checkpoint.Dir
	out   *reporter
	has   shard // what it brings into the next epoch

	last    elastic.Place // in which it has trained, and when that ended; zero before
	stopped time.Time
}

// epoch is a trainer among the workers of one epoch. What it serves runs only while it lasts.
type epoch struct {
	*trainer
	*elastic.Epoch
	api
	saves saves
	count int           // of parameters
	ready chan struct{} // closed when now is there
	ended chan struct{} // closed when the first worker says that the epoch is over

	mu  sync.Mutex
	now shard
}

// work is this worker's part in one epoch.
func (t *trainer) work(c context.Context, in *elastic.Epoch) error {
	e := &epoch{trainer: t, Epoch: in, count: len(t.firstParams()), ready: make(chan struct{}), ended: make(chan struct{})}
	err := e.train(c)
	select {
	case <-e.ready:
		t.has, t.last, t.stopped = e.now, e.Place, time.Now() // nobody else uses it any more
	default: // it keeps what it had
	}
	if err == nil && t.has.step < t.steps() {
		return elastic.ErrOver
	}
	select {
	case <-in.Over: // that is why
	default:
		if err != nil && c.Err() == nil {
			t.out.lost(in.Rank, err)
		}
	}
	return err
}

// train joins the others, agrees with them where to go on, and trains until the end, or until
// others come or go.
func (e *epoch) train(c context.Context) error {
	e.saves.c, e.saves.stop = context.WithCancel(c)
	defer e.saves.abandon()
	joining, joined := e.Context(c)
	defer joined()
	w, err := rpc.Join(joining, rpc.Config{
		Store: e.Store, Rank: e.Rank, WorldSize: e.World, Listen: net.JoinHostPort(e.Addr, "0"), Functions: e.serve(),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})), // losses are told of here
	})
	if errors.Is(err, rpc.ErrConfig) { // such as no token
		return elastic.Final(err)
	}
	if err != nil {
		return err
	}
	defer w.Close() //nolint:errcheck // the others are told, or gone
	if err := e.agree(w.Context(joining)); err != nil {
		return err
	}
	joined()
	if e.Rank == 0 {
		err = e.lead(w.Context(c), w)
	} else {
		err = e.follow(c, w)
	}
	if err != nil {
		return err
	}
	return w.Leave(c)
}

// lead makes the steps. When the nodes change without any of these workers being lost, the step
// that is under way is the last of this epoch.
func (e *epoch) lead(c context.Context, w *rpc.Worker) error {
	for e.step() < e.steps() {
		select {
		case <-e.Over:
			return e.all(c, e.end)
		default:
		}
		began := time.Now()
		if err := w.Pass(c, e.pass); err != nil {
			return fmt.Errorf("step %d: %w", e.step()+1, err)
		}
		if n := e.step(); n%e.every == 0 || n == e.steps() {
			if err := e.all(c, e.save); err != nil {
				return err
			}
		}
		time.Sleep(time.Until(began.Add(e.pace)))
	}
	accuracy, err := e.accuracy(c, w)
	if err != nil {
		return err
	}
	return errors.Join(elastic.Final(e.out.finish(accuracy, e.now.history)), e.all(c, e.end))
}

// follow serves until the first worker says that the epoch is over, or somebody is lost.
func (e *epoch) follow(c context.Context, w *rpc.Worker) error {
	c, cancel := context.WithCancel(c)
	defer cancel()
	events := w.Peers(c)
	for {
		select {
		case <-e.ended:
			return nil
		case p, ok := <-events:
			switch {
			case !ok:
				return context.Cause(c)
			case p.Change == rpc.PeerWasLost || p.Change == rpc.PeerHasLeft:
				return p.Cause
			}
		}
	}
}

// step is how many steps have been made.
func (e *epoch) step() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now.step
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport/simnet"
)

const (
	demoPace  = 10 * time.Millisecond
	compareBy = 5 // synchronous steps
)

// demonstrate trains in this process, over links that are slow, and says what a step of all workers
// together would take there.
func demonstrate(c context.Context, s settings, t *task, stdout io.Writer) error {
	if s.pace == 0 {
		s.pace = demoPace
	}
	fmt.Fprintf(stdout, "%d workers on links of %v, inner steps of %v or more; an exchange every %d steps, %d of them under way, as %v\n",
		s.workers, s.links, s.pace, s.outer.Every, s.outer.Delay, s.outer.Wire)
	out := newReporter(s, stdout)
	var outer, sync result
	err := onLinks(c, s, func(c context.Context, g *collective.Group) error {
		w, err := newTrainer(s, t, g.Rank())
		if err != nil {
			return err
		}
		w.g = g
		if g.Rank() == 0 {
			w.told = out.stepped
		}
		r, err := w.train(c)
		if err != nil {
			return err
		}
		if w, err = newTrainer(s, t, g.Rank()); err != nil { // from the beginning
			return err
		}
		w.g = g
		for range 2 { // in the first step nobody knows in which order gradients come
			var all result
			if all, err = w.together(c, compareBy); err != nil {
				return err
			}
			if g.Rank() == 0 {
				outer, sync = r, all
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := out.conclude(outer); err != nil {
		return err
	}
	out.beside(outer, sync, bytesTogether(t, s))
	return nil
}

// onLinks has workers in this process, on links of their own, do something in a group of all.
func onLinks(c context.Context, s settings, do func(c context.Context, g *collective.Group) error) error {
	c, cancel := context.WithCancelCause(c)
	defer cancel(nil)
	quiet := slog.New(slog.DiscardHandler)
	net := simnet.New(simnet.Config{MinDelay: s.links, MaxDelay: s.links, Logger: quiet})
	st := store.NewMemory()
	errs := make([]error, s.workers)
	var all sync.WaitGroup
	for rank := range s.workers {
		all.Go(func() {
			host := fmt.Sprint("host", rank)
			errs[rank] = member(c, rpc.Config{Store: st, Rank: rank, WorldSize: s.workers, Network: net.Host(host), Listen: host + ":0", Logger: quiet}, do)
			if errs[rank] != nil {
				cancel(errs[rank]) // the others need not wait
			}
		})
	}
	all.Wait()
	if why := context.Cause(c); why != nil {
		errs = []error{why}
	}
	return errors.Join(append(errs, st.Close())...)
}

func member(c context.Context, cfg rpc.Config, do func(c context.Context, g *collective.Group) error) (err error) {
	w, err := rpc.Join(c, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	g, err := collective.Open(c, w, "outer")
	if err != nil {
		return err
	}
	if err := errors.Join(do(c, g), g.Close()); err != nil {
		return err
	}
	return w.Leave(c) // when all are done
}

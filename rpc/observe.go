package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/internal/printable"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/roster"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// ErrNoJob is what Observe fails with where the store knows of no worker.
var ErrNoJob = errors.New("no worker has joined a job in this store")

// Observed is a worker of a running job, as an observer sees it.
type Observed struct {
	Name   string // empty where nobody knows it
	Rank   int
	Addr   string
	Status *Status // nil where Err is not
	Err    error   // why it gave none: it has not joined, does not answer, or says what cannot be
}

const (
	observeTimeout = 2 * time.Second
	maxAsked       = 32   // workers at a time
	maxObserved    = 4096 // workers in all
	recordTimeout  = time.Second
	probedRanks    = 64 // in search of a worker, where rank 0 is not there
)

// Observe asks every worker of a running job for its status, by rank. It joins nothing: the job
// neither counts nor awaits who observes it. The workers are those in the job's store, and those of
// which these know. net must have the job's identity. Each worker has timeout to answer, 0 for 2 s;
// that some do not is no error but theirs. It fails with ErrNoJob, and where the store fails.
func Observe(c context.Context, st store.Store, net transport.Network, timeout time.Duration) ([]Observed, error) {
	if timeout <= 0 {
		timeout = observeTimeout
	}
	o := &observer{net: net, timeout: timeout, seen: map[int]*Observed{}}
	if err := o.look(c, st); err != nil {
		return nil, fmt.Errorf("rpc: observe: %w", err)
	}
	for todo := o.unasked(); len(todo) > 0; todo = o.unasked() {
		o.askAll(c, todo)
	}
	var all []Observed
	for _, rank := range slices.Sorted(maps.Keys(o.seen)) {
		all = append(all, *o.seen[rank])
	}
	return all, nil
}

// observer is one Observe. Its map is its caller's goroutine's.
type observer struct {
	net     transport.Network
	timeout time.Duration
	seen    map[int]*Observed // by rank
}

// look finds in the store who has joined.
func (o *observer) look(c context.Context, st store.Store) error {
	world, there := 0, 0
	for rank := 0; rank < max(world, 1) || there == 0 && rank < probedRanks; rank++ {
		r, err := joined(c, st, rank)
		switch {
		case r != nil:
			there++
			world = max(world, min(r.World, maxObserved))
			o.seen[rank] = &Observed{Name: r.Name, Rank: rank, Addr: printable.Text(r.Addr, maxStatusText)}
		case errors.Is(err, ErrProtocol):
			o.seen[rank] = &Observed{Rank: rank, Err: err}
		case err != nil:
			return err
		}
	}
	if there == 0 {
		return ErrNoJob
	}
	for rank := range world {
		if o.seen[rank] == nil {
			o.seen[rank] = &Observed{Rank: rank, Err: errors.New("it is not in the store: it has not joined yet, or has left")}
		}
	}
	return nil
}

// joined is what the worker of that rank has written, nil where there is none.
func joined(c context.Context, st store.Store, rank int) (*roster.Member, error) {
	there, err := st.Check(c, membership.RankKey(rank))
	if err != nil || !there {
		return nil, err
	}
	within, cancel := context.WithTimeout(c, recordTimeout)
	defer cancel()
	raw, err := st.Get(within, membership.RankKey(rank))
	if err != nil {
		if within.Err() != nil && c.Err() == nil { // it has left since
			return nil, nil
		}
		return nil, err
	}
	if string(raw) == membership.Going { // it leaves
		return nil, nil
	}
	r := &roster.Member{}
	if err := wire.Decode(bytes.TrimPrefix(raw, []byte(membership.LostMark)), r); err != nil {
		return nil, fmt.Errorf("its record in the store: %w", err)
	}
	if r.Rank != rank || !membership.NameRule.MatchString(r.Name) {
		return nil, fmt.Errorf("%w: its record in the store is that of rank %d, %q", ErrProtocol, r.Rank, bounded(r.Name, maxStatusText))
	}
	return r, nil
}

func (o *observer) unasked() []*Observed {
	var todo []*Observed
	for _, w := range o.seen {
		if w.Status == nil && w.Err == nil {
			todo = append(todo, w)
		}
	}
	return todo
}

// askAll asks some at a time, and notes of whom they know beside.
func (o *observer) askAll(c context.Context, todo []*Observed) {
	var wg sync.WaitGroup
	places := make(chan struct{}, maxAsked)
	for _, w := range todo {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			w.Status, w.Err = o.ask(c, w)
		})
	}
	wg.Wait()
	for _, w := range todo {
		if w.Status == nil {
			continue
		}
		for _, p := range w.Status.Peers {
			if p.Gone == "" && p.Addr != "" && o.missing(p.Rank) && len(o.seen) < maxObserved {
				o.seen[p.Rank] = &Observed{Name: p.Name, Rank: p.Rank, Addr: p.Addr}
			}
		}
	}
}

// missing says that nothing is known of the worker of that rank.
func (o *observer) missing(rank int) bool {
	w := o.seen[rank]
	return w == nil || w.Name == "" && w.Addr == ""
}

// ask makes an observer's link: its first message is the request, and its only one.
func (o *observer) ask(c context.Context, w *Observed) (*Status, error) {
	c, cancel := context.WithTimeout(c, o.timeout)
	defer cancel()
	link, err := o.net.Dial(c, w.Addr)
	if err != nil {
		return nil, o.explain(c, err)
	}
	defer link.Close("observed")
	if w.Name != "" {
		if err := link.Vouches(w.Name, w.Rank); err != nil {
			return nil, err
		}
	}
	reply, err := exchange(c, link, &transport.Message{Kind: wire.KindStatus}, wire.NoTensors)
	if err != nil {
		return nil, o.explain(c, err)
	}
	defer reply.Release()
	var h wire.ReplyHeader
	if err := h.Parse(reply.Header); err != nil {
		return nil, err
	}
	if h.Err != nil {
		return nil, errorTypes{}.fromWire(h.Err)
	}
	st, err := decodeStatus(h.Value)
	if err == nil && (st.Rank != w.Rank || st.Name != w.Name) {
		err = fmt.Errorf("%w: %s of rank %d answers at the address of %s of rank %d", ErrProtocol, st.Name, st.Rank, w.Name, w.Rank)
	}
	if err != nil {
		return nil, err
	}
	return st, nil
}

func (o *observer) explain(c context.Context, err error) error {
	if context.Cause(c) != nil && !errors.Is(err, transport.ErrIdentity) {
		return fmt.Errorf("it did not answer within %v: %w", o.timeout, ctx.AsTimeout(context.Cause(c)))
	}
	return err
}

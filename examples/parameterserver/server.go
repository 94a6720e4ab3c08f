package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
)

// server owns the two tables: what a word is, and what it is like near one.
type server struct {
	s    settings
	d    *corpus
	word nn.Embedding
	near nn.Embedding
	out  *reporter
	hook func(c context.Context) // in every lookup, for tests; nil: none
	came chan string             // trainers that greeted

	mu     sync.Mutex
	losses []float64      // of all trainers, as they came
	steps  map[string]int // by trainer
}

func newServer(s settings, d *corpus, stdout io.Writer) *server {
	src := rand.New(rand.NewPCG(s.seed, 1))
	table := func() nn.Embedding {
		return nn.Embedding{Table: autodiff.NormalFrom(src, 0.1, len(d.words), s.dim).RequireGrad(), Sparse: true}
	}
	return &server{s: s, d: d, word: table(), near: table(), out: newReporter(s, d, stdout), steps: map[string]int{}, came: make(chan string, 64)}
}

// greeting is what a trainer says when it comes.
type greeting struct {
	Trainer string
	PID     int
}

// progress is the loss of each step that a trainer made since the last.
type progress struct {
	Trainer string
	Losses  []float64
}

// query asks for rows of both tables.
type query struct{ Words, Near *autodiff.Tensor }

// rows are the answer, one row for each number asked for.
type rows struct{ Words, Near *autodiff.Tensor }

// api is what the server serves. Trainers make one too, to call it.
type api struct {
	tables *rpc.Func[greeting, []optim.Param]
	lookup *rpc.Func[query, rows]
	report *rpc.Func[progress, struct{}]
}

func newAPI(v *server) api {
	return api{
		tables: rpc.Define("tables", func(c context.Context, in greeting) ([]optim.Param, error) {
			v.out.joined(in)
			select {
			case v.came <- in.Trainer:
			case <-c.Done():
				return nil, context.Cause(c)
			}
			return references(c, v.word.Table, v.near.Table)
		}),
		lookup: rpc.Define("lookup", func(c context.Context, in query) (rows, error) {
			if v.hook != nil {
				v.hook(c)
			}
			return rows{v.word.Forward(in.Words), v.near.Forward(in.Near)}, nil
		}),
		report: rpc.Define("report", func(_ context.Context, in progress) (struct{}, error) {
			v.took(in)
			return struct{}{}, nil
		}),
	}
}

func (a api) functions() []rpc.Function {
	return append(optim.Functions(), a.tables, a.lookup, a.report)
}

// took notes a trainer's steps.
func (v *server) took(in progress) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.steps[in.Trainer] += len(in.Losses)
	for _, l := range in.Losses {
		v.losses = append(v.losses, l)
		v.out.step(len(v.losses), l)
	}
}

// references makes this worker the owner of tensors that others may refer to.
func references(c context.Context, ts ...*autodiff.Tensor) ([]optim.Param, error) {
	refs := make([]optim.Param, len(ts))
	for i, t := range ts {
		var err error
		if refs[i], err = rpc.NewRRef(c, t); err != nil {
			return nil, err
		}
	}
	return refs, nil
}

// serve is the whole life of the server: it ends when every trainer has finished or is lost.
func serve(c context.Context, s settings, d *corpus, place store.Rendezvous, stdout io.Writer) error {
	v := newServer(s, d, stdout)
	w, err := v.join(c, place)
	if err != nil {
		return err
	}
	began := time.Now()
	lost, err := v.attend(c, w, place.WorldSize-1)
	if err != nil {
		return errors.Join(err, w.Close())
	}
	if err := w.Leave(c); err != nil {
		return err
	}
	return v.finish(lost, time.Since(began), stdout)
}

func (v *server) join(c context.Context, place store.Rendezvous) (*rpc.Worker, error) {
	return rpc.Join(c, rpc.Config{Name: serverName, Store: place.Store, Dynamic: true, Functions: newAPI(v).functions()})
}

// patience is how long the server waits for trainers where none is there.
const patience = time.Minute

// attend waits until as many trainers as are expected have come, and all have gone again. It gives
// the names of the lost.
func (v *server) attend(c context.Context, w *rpc.Worker, expected int) (lost []string, err error) {
	var a attendance
	c, cancel := context.WithCancel(c)
	defer cancel()
	events, alone := w.Peers(c), time.NewTimer(patience)
	defer alone.Stop()
	for company := false; !a.over(expected); {
		switch before := company; {
		case len(a.here) > 0:
			alone.Stop() // trainers say nothing here while they train, for however long that is
			company = true
		case before:
			alone.Reset(patience)
			company = false
		}
		select {
		case name := <-v.came: // it may have gone before anybody looked
			there := slices.ContainsFunc(w.Workers(), func(i rpc.WorkerInfo) bool { return i.Name == name })
			if !there && !slices.Contains(a.seen, name) {
				lost = append(lost, name)
				v.out.lost(name, 0, len(a.here))
			}
			a.come(name, there)
		case <-alone.C:
			return lost, fmt.Errorf("of %d trainers only these came: %v", expected, a.seen)
		case e, ok := <-events:
			switch {
			case !ok:
				return lost, context.Cause(c)
			case e.Change == rpc.PeerJoined:
				a.come(e.Name, true)
			case e.Change == rpc.PeerHasLeft:
				a.leave(e.Name)
			case e.Change == rpc.PeerWasLost:
				a.leave(e.Name)
				lost = append(lost, e.Name)
				took, err := passesGone(c, w, e.Rank)
				if err != nil {
					return lost, err
				}
				v.out.lost(e.Name, took, len(a.here))
			}
		}
	}
	return lost, nil
}

// attendance is who is here, and who ever was.
type attendance struct{ here, seen []string }

func (a *attendance) come(name string, there bool) {
	if !slices.Contains(a.seen, name) {
		a.seen = append(a.seen, name)
	}
	if there && !slices.Contains(a.here, name) {
		a.here = append(a.here, name)
	}
}

func (a *attendance) leave(name string) {
	a.here = slices.DeleteFunc(a.here, func(n string) bool { return n == name })
}

// over says that enough have come, and nobody is left. One who was lost may come again while others
// are here.
func (a *attendance) over(expected int) bool { return len(a.seen) >= expected && len(a.here) == 0 }

// passesGone waits until this worker holds no pass of a lost one.
func passesGone(c context.Context, w *rpc.Worker, rank int) (time.Duration, error) {
	began, tick := time.Now(), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for slices.ContainsFunc(w.Passes(), func(p ctx.PassInfo) bool { return int(p.ID.Creator()) == rank }) {
		select {
		case <-tick.C:
		case <-c.Done():
			return 0, fmt.Errorf("a lost trainer's passes are still here: %w", context.Cause(c))
		}
	}
	return time.Since(began), nil
}

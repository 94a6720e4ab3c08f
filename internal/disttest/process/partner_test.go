package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/internal/disttest/workload"
)

// partner is a member of a group, in another process.
type partner struct {
	m *workload.Member

	mu   sync.Mutex
	g    *collective.Group
	sums int           // how many were right
	more chan struct{} // closed with the next one
}

// arrays is how long the arrays are that partners sum: 1 MiB.
const arrays = 1 << 18

// parted is how a loop of sums ended.
type parted struct {
	Sums  int
	Lost  string // the member that the error names
	Err   string
	Known time.Time
}

// gone is a change of generations.
type gone struct {
	Took       time.Duration
	Generation uint64
	Members    []string
}

func (p *partner) group() *collective.Group {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.g
}

func (p *partner) become(g *collective.Group) gone {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.g = g
	done := gone{Generation: g.Generation()}
	for _, m := range g.Members() {
		done.Members = append(done.Members, m.Worker)
	}
	return done
}

func (p *partner) join(c context.Context, at workload.Place) (err error) {
	p.more = make(chan struct{})
	p.m, err = at.Join(c)
	return err
}

func (p *partner) open(c context.Context, at workload.Place) (gone, error) {
	if err := p.join(c, at); err != nil {
		return gone{}, err
	}
	g, err := collective.Open(c, p.m.Worker, "g")
	if err != nil {
		return gone{}, err
	}
	return p.become(g), nil
}

func (p *partner) enlist(c context.Context, at workload.Place) (gone, error) {
	if err := p.join(c, at); err != nil {
		return gone{}, err
	}
	g, err := collective.Enlist(c, p.m.Worker, "g")
	if err != nil {
		return gone{}, err
	}
	return p.become(g), nil
}

// sum sums until that fails. A result that is not right is an error of the command.
func (p *partner) sum(c context.Context, most int) (done parted, err error) {
	g := p.group()
	want := float32(0)
	for _, m := range g.Members() {
		want += float32(m.WorkerRank)
	}
	x := make([]float32, arrays)
	for done.Sums < most {
		for i := range x {
			x[i] = float32(p.m.Rank())
		}
		err := collective.AllReduce(c, g, x, collective.Sum)
		done.Known = time.Now()
		if err != nil {
			done.Err = err.Error()
			if lost := (*collective.LostError)(nil); errors.As(err, &lost) {
				done.Lost = lost.Worker
			}
			return done, nil
		}
		for i, v := range x {
			if v != want {
				return done, fmt.Errorf("element %d of sum %d among %d is %v; expected %v", i, done.Sums, g.Size(), v, want)
			}
		}
		done.Sums++
		p.count()
	}
	return done, nil
}

func (p *partner) count() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sums++
	close(p.more)
	p.more = make(chan struct{})
}

// after waits until so many sums were right since it was asked.
func (p *partner) after(c context.Context, n int) (struct{}, error) {
	p.mu.Lock()
	until := p.sums + n
	p.mu.Unlock()
	for {
		p.mu.Lock()
		reached, more := p.sums >= until, p.more
		p.mu.Unlock()
		if reached {
			return struct{}{}, nil
		}
		select {
		case <-more:
		case <-c.Done():
			return struct{}{}, context.Cause(c)
		}
	}
}

func (p *partner) without(c context.Context, lost []string) (gone, error) {
	return p.change(func(g *collective.Group) (*collective.Group, error) { return g.Without(c, lost...) })
}

func (p *partner) with(c context.Context, names []string) (gone, error) {
	return p.change(func(g *collective.Group) (*collective.Group, error) { return g.With(c, names...) })
}

func (p *partner) change(to func(*collective.Group) (*collective.Group, error)) (gone, error) {
	began := time.Now()
	next, err := to(p.group())
	if err != nil {
		return gone{}, err
	}
	took := time.Since(began)
	done := p.become(next)
	done.Took = took
	return done, nil
}

// survive sums as a program does that goes on without those that are lost.
func (p *partner) survive(c context.Context, _ struct{}) (gone, error) {
	g, grads := p.group(), []float32{1}
	err := collective.AllReduce(c, g, grads, collective.Sum)
	for errors.Is(err, collective.ErrLost) {
		if g, err = g.Without(c); err == nil { // all that are left call it
			err = collective.AllReduce(c, g, grads, collective.Sum)
		}
	}
	if err != nil || grads[0] != float32(g.Size()) {
		return gone{}, fmt.Errorf("the sum is %v: %w", grads, err)
	}
	return p.become(g), nil
}

func (p *partner) end(context.Context, struct{}) (struct{}, error) {
	return struct{}{}, errors.Join(p.group().Close(), p.m.Close())
}

// heed ends the process in good order when it is told to terminate, whatever it is in.
func (p *partner) heed(context.Context, struct{}) (struct{}, error) {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	go func() {
		<-told
		if _, err := p.end(context.Background(), struct{}{}); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}()
	return struct{}{}, nil
}

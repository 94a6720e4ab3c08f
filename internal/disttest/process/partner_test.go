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
	"github.com/weft-project/weft/device"
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
func (p *partner) sum(c context.Context, most int) (parted, error) {
	x := make([]float32, arrays)
	return p.repeat(most, func(g *collective.Group) (right, err error) {
		fill(x, p.m.Rank())
		err = collective.AllReduce(c, g, x, collective.Sum)
		return filled(x, ranksOf(g)), err
	})
}

// narrow does so with arrays that travel as bfloat16, which holds such small numbers.
func (p *partner) narrow(c context.Context, most int) (parted, error) {
	x := make([]float32, arrays)
	var n collective.Narrow
	return p.repeat(most, func(g *collective.Group) (right, err error) {
		fill(x, p.m.Rank())
		err = n.AllReduce(c, g, x, collective.Sum)
		return filled(x, ranksOf(g)), err
	})
}

// gather gathers the buffers of all, until that fails.
func (p *partner) gather(c context.Context, most int) (parted, error) {
	return p.repeat(most, func(g *collective.Group) (right, err error) {
		x, err := buffer(p.m.Rank())
		if err != nil {
			return err, nil
		}
		defer x.Release() //nolint:errcheck // ours
		all, err := g.AllGathered(c, device.Float32, x)
		return own(all, g, func(m collective.Member) int { return m.WorkerRank }), err
	})
}

// trade gives each member a buffer of its own, until that fails.
func (p *partner) trade(c context.Context, most int) (parted, error) {
	return p.repeat(most, func(g *collective.Group) (right, err error) {
		x := make([]*device.Buffer, g.Size())
		for r, m := range g.Members() {
			if x[r], err = buffer(10*p.m.Rank() + m.WorkerRank); err != nil {
				return err, nil
			}
			defer x[r].Release() //nolint:errcheck // ours
		}
		all, err := g.Exchanged(c, device.Float32, x)
		return own(all, g, func(m collective.Member) int { return 10*m.WorkerRank + p.m.Rank() }), err
	})
}

func fill(x []float32, with int) {
	for i := range x {
		x[i] = float32(with)
	}
}

func filled(x []float32, with int) error {
	for i, v := range x {
		if v != float32(with) {
			return fmt.Errorf("element %d is %v; expected %d", i, v, with)
		}
	}
	return nil
}

func ranksOf(g *collective.Group) (sum int) {
	for _, m := range g.Members() {
		sum += m.WorkerRank
	}
	return sum
}

func buffer(with int) (*device.Buffer, error) {
	b, err := device.Host().Alloc(4 * arrays)
	if err != nil {
		return nil, err
	}
	mem, err := b.Host()
	fill(device.As[float32](mem), with)
	return b, err
}

// own checks what came from each member, and gives it back.
func own(all []*device.Buffer, g *collective.Group, want func(m collective.Member) int) (err error) {
	for r, b := range all {
		mem, e := b.Host()
		err = errors.Join(err, e, filled(device.As[float32](mem), want(g.Members()[r])), b.Release())
	}
	return err
}

// repeat does something until it fails. A result that is not right is an error of the command.
func (p *partner) repeat(most int, do func(g *collective.Group) (right, err error)) (done parted, err error) {
	g := p.group()
	for done.Sums < most {
		right, err := do(g)
		done.Known = time.Now()
		if err != nil {
			done.Err = err.Error()
			if lost := (*collective.LostError)(nil); errors.As(err, &lost) {
				done.Lost = lost.Worker
			}
			return done, nil
		}
		if right != nil {
			return done, fmt.Errorf("operation %d among %d: %w", done.Sums, g.Size(), right)
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

package outer

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport/simnet"
)

// camp is a job whose agents are the test: it starts processes, kills them, and tells those that
// are left who makes up the next epoch.
type camp struct {
	t      *testing.T
	net    *simnet.Net
	st     store.Store
	cfg    Config
	rounds uint64        // of the job
	evals  uint64        // Finish comes after every so many steps; 0: at the end alone
	eval   func(p *proc) // what follows that
	all    sync.WaitGroup

	mu      sync.Mutex
	r       *rand.Rand
	procs   []*proc // that run, by rank
	lives   int
	epoch   int
	ended   []*proc              // well
	failed  []error              // of those that have failed by themselves
	most    int                  // how often one is started in the place of another, and 1; 0: 20
	weights map[uint64][]float64 // by exchange, as it was applied last
	changes []Change
	begun   bool
	anew    int // how often training has begun once more, without a state
}

// proc is a process: a worker with a life and a host of its own.
type proc struct {
	id     int
	host   string
	params []*autodiff.Tensor
	pace   time.Duration
	c      context.Context
	kill   context.CancelFunc

	place  elastic.Place
	next   int           // the epoch of the place that it is about to be told
	over   chan struct{} // of the place; nil: it has not been told any
	told   chan struct{} // closed with the first
	ranks  []int         // by epoch that it has been told of
	inner  func() error  // its inner step
	early  uint64        // after how many steps it ends, whatever the others do; 0: it does not
	has    bool          // work has been called
	killed bool
	failed time.Duration // how long it took to fail since it had its place
	values [][]float32   // at the end
	rounds uint64
	steps  uint64
}

func newCamp(t *testing.T, seed uint64, cfg Config, rounds uint64) *camp {
	t.Helper()
	leak.Check(t)
	delay := func(_, _ string, r *rand.Rand) time.Duration { return time.Duration(1+r.IntN(30)) * time.Millisecond }
	m := &camp{
		t: t, cfg: cfg, rounds: rounds, st: store.NewMemory(), weights: map[uint64][]float64{}, r: rand.New(rand.NewPCG(seed, 8)),
		net: simnet.New(simnet.Config{Delay: delay, Detect: time.Second, Logger: slog.New(slog.DiscardHandler)}),
	}
	t.Cleanup(func() { require.NoError(t, m.st.Close()) })
	m.cfg.Logger = slog.New(slog.DiscardHandler)
	m.cfg.Changed = func(ch Change) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.changes = append(m.changes, ch)
	}
	return m
}

// start starts a process, which waits for its first place.
func (m *camp) start() *proc {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lives++
	p := &proc{id: m.lives, host: fmt.Sprint("host", m.lives), told: make(chan struct{}), pace: time.Duration(20+m.r.IntN(30)) * time.Millisecond}
	for _, shape := range shapes {
		p.params = append(p.params, autodiff.New(make([]float32, elems(shape)), shape...))
	}
	p.inner = func() error { return add(p.params) }
	p.c, p.kill = context.WithTimeout(m.t.Context(), time.Hour)
	m.procs = append(m.procs, p)
	m.all.Go(func() { m.exited(p, m.live(p)) })
	return p
}

// exited takes the end of a process. Who has failed is replaced.
func (m *camp) exited(p *proc, err error) {
	m.mu.Lock()
	m.procs = slices.DeleteFunc(m.procs, func(o *proc) bool { return o == p })
	again := false
	switch {
	case p.killed:
	case err == nil:
		m.ended = append(m.ended, p)
		again = p.next > p.place.Epoch // others count on it
		if !slices.ContainsFunc(m.procs, func(o *proc) bool { return o.has }) {
			again = false // the job is over
			for _, o := range m.procs {
				o.killed = true
				o.kill()
			}
		}
	default:
		m.failed = append(m.failed, fmt.Errorf("process %d: %w", p.id, err))
		again = len(m.failed) < cmp.Or(m.most, 20)
	}
	m.mu.Unlock()
	p.kill()
	if again {
		m.start()
		m.form()
	}
}

// form makes the next epoch of all that run, and tells each some time later.
func (m *camp) form() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch++
	epoch := m.epoch
	for rank, i := range m.r.Perm(len(m.procs)) {
		p, place := m.procs[i], elastic.Place{Rank: rank, World: len(m.procs), Epoch: epoch}
		p.next = epoch
		time.AfterFunc(time.Duration(m.r.IntN(100))*time.Millisecond, func() { m.tell(p, place) })
	}
}

func (m *camp) tell(p *proc, place elastic.Place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if place.Epoch <= p.place.Epoch {
		return
	}
	if p.over == nil {
		close(p.told)
	} else {
		close(p.over)
	}
	p.over = make(chan struct{})
	place.Over = p.over
	p.place, p.ranks = place, append(p.ranks, place.Rank)
}

// live is Each, with places that the test tells.
func (m *camp) live(p *proc) error {
	select {
	case <-p.told:
	case <-p.c.Done():
		return context.Cause(p.c)
	}
	l, err := newLoop(p.params, m.cfg)
	if err != nil {
		return err
	}
	defer l.Close()
	for {
		m.mu.Lock()
		e := &elastic.Epoch{Place: p.place}
		m.mu.Unlock()
		e.Store = elastic.EpochStore(m.st, e.Epoch)
		began := time.Now()
		final, err := l.attend(p.c, e, m.join(p), m.work(p))
		select {
		case <-e.Over:
			err = nil
		default:
			if final || err == nil {
				p.values, p.rounds, p.steps, p.failed = valuesOf(m.t, p.params), l.Rounds(), l.Steps(), time.Since(began)
				return err
			}
		}
		select {
		case <-e.Over:
		case <-p.c.Done():
			return context.Cause(p.c)
		case <-time.After(time.Minute):
			return fmt.Errorf("no other place has followed: %w", err)
		}
	}
}

func (m *camp) join(p *proc) joining {
	return func(c context.Context, e *elastic.Epoch, _ Config) (*rpc.Worker, error) {
		return rpc.Join(c, rpc.Config{
			Store: e.Store, Rank: e.Rank, WorldSize: e.World, Network: m.net.Host(p.host), Listen: p.host + ":0", Logger: slog.New(slog.DiscardHandler),
		})
	}
}

// work adds 1 to all elements at each step.
func (m *camp) work(p *proc) working {
	return func(c context.Context, e *elastic.Epoch, l *Loop) error {
		m.mu.Lock()
		if m.begun && !slices.ContainsFunc(m.procs, func(o *proc) bool { return o.has }) {
			m.anew++
		}
		p.has, m.begun = true, true
		m.mu.Unlock()
		ends := func() bool {
			if m.cfg.FirstCalls {
				return l.Rounds() >= m.rounds
			}
			return l.Steps() >= m.rounds*uint64(m.cfg.Every) || p.early > 0 && l.Steps() >= p.early
		}
		finish := func() error {
			before := l.Total().Exchanges
			err := l.Finish(c)
			m.note(l, before)
			return err
		}
		for !ends() {
			if steps := l.Steps(); m.evals > 0 && steps > 0 && steps%m.evals == 0 {
				if err := finish(); err != nil {
					return err
				}
				m.eval(p)
			}
			time.Sleep(p.pace)
			if err := p.inner(); err != nil {
				return err
			}
			before := l.Total().Exchanges
			err := l.Step(c)
			m.note(l, before)
			if err != nil {
				return err
			}
		}
		return finish()
	}
}

// note notes the weights of the exchange that was applied last.
func (m *camp) note(l *Loop, before int) {
	if e := l.Last(); l.Total().Exchanges > before {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.weights[e.Round] = e.Weights
	}
}

// add makes an inner step.
func add(params []*autodiff.Tensor) error {
	values := make([]*autodiff.Tensor, len(params))
	for k, p := range params {
		x, err := autodiff.Values[float32](p)
		if err != nil {
			return err
		}
		for i := range x {
			x[i]++
		}
		values[k] = autodiff.New(x, p.Shape()...)
	}
	return autodiff.Assign(params, values)
}

// slay kills a process, if another one has the state and none has ended. It says whether it did.
func (m *camp) slay(victim func(p *proc) bool) *proc {
	m.mu.Lock()
	defer m.mu.Unlock()
	var may []*proc
	for _, p := range m.procs {
		spare := slices.ContainsFunc(m.procs, func(o *proc) bool { return o != p && o.has && !o.killed })
		if spare && !p.killed && victim(p) {
			may = append(may, p)
		}
	}
	if len(may) == 0 || len(m.ended) > 0 {
		return nil
	}
	p := may[m.r.IntN(len(may))]
	p.killed = true
	m.procs = slices.DeleteFunc(m.procs, func(o *proc) bool { return o == p })
	p.kill() // first, so that it does not hear of its links
	m.net.Kill(p.host)
	return p
}

func anybody(*proc) bool { return true }

// running is how many processes run.
func (m *camp) running() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.procs)
}

// draw draws a duration.
func (m *camp) draw(most time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Duration(m.r.Int64N(int64(most)))
}

// end waits for the end, and says that all that have ended are at the same.
func (m *camp) end() {
	m.t.Helper()
	m.all.Wait()
	require.NotEmpty(m.t, m.ended)
	for _, p := range m.ended[1:] {
		require.Equal(m.t, m.ended[0].values, p.values, "process %d", p.id)
		require.Equal(m.t, m.ended[0].rounds, p.rounds, "process %d", p.id)
		if !m.cfg.FirstCalls {
			require.Equal(m.t, m.ended[0].steps, p.steps, "process %d", p.id)
		}
	}
}

// requireOracle says that the values are those of all exchanges, where each takes the mean over
// what its members have made, weighted by that, in full, and what they have made counts once.
func (m *camp) requireOracle() {
	m.t.Helper()
	want := 0.0
	for round := range m.ended[0].rounds {
		sum, squares := 0.0, 0.0
		for _, w := range m.weights[round] {
			sum, squares = sum+w, squares+w*w
		}
		if sum > 0 {
			want += squares / sum
		}
	}
	require.Positive(m.t, want)
	for _, x := range m.ended[0].values {
		for _, v := range x {
			require.InEpsilon(m.t, want, v, 1e-4, "%v", m.weights)
		}
	}
}

func elems(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

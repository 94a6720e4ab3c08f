package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/disttest/hostile"
	"github.com/weft-project/weft/internal/disttest/workload"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/resilient"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
)

// student trains in a team, in another process, and is a node of a rendezvous beside it.
type student struct {
	lesson lesson
	w      *rpc.Worker
	st     store.Store
	node   *rdzv.Rendezvous
	done   chan struct{}

	mu     sync.Mutex
	step   uint64
	last   uint64        // how many steps are made; 0: not known yet
	pauses chan struct{} // no further step is begun before it is closed; nil: it may be
	more   chan struct{} // closed with the next step
	report report
}

// lesson is what a student does.
type lesson struct {
	Place  workload.Place
	Comes  bool          // it is no founder
	Pace   time.Duration // of a step
	Away   time.Duration // its rows are computed elsewhere, which takes so long; here few are
	Inputs int
	Hidden int
	Batch  int // rows of a step; 0 means 48
}

// report is what a student has made.
type report struct {
	First   uint64
	Losses  []float64
	Took    []time.Duration // each step, without what is left of its pace
	Used    []time.Duration // processor time, from the end of the step before
	Coming  time.Duration   // processor time until it had the state
	Changes []resilient.Change
	Digest  float64 // of its parameters at the end
	Stuck   string  // what its goroutines waited for in the first step that took long
	Err     string
}

const class = "class" // name of the team

// learner is a model that is made and learns alike in all processes.
type learner struct {
	model nn.Sequential
	opt   *optim.Local
	data  []float32
	wants []int64
	lesson
}

const taught, answers = 512, 4 // rows of the data, and classes

func newLearner(l lesson) (*learner, error) {
	src := rand.New(rand.NewPCG(1, 1))
	x := &learner{model: nn.NewMLP(src, autodiff.GELU, l.Inputs, l.Hidden, answers), lesson: l}
	for range taught {
		at := src.IntN(answers)
		for f := range l.Inputs {
			v := float32(src.NormFloat64())
			if f%answers == at {
				v++
			}
			x.data = append(x.data, v)
		}
		x.wants = append(x.wants, int64(at))
	}
	var err error
	x.opt, err = optim.NewGroups(optim.Named(optim.AdamW{LR: 1e-4}, nn.Parameters(x.model)))
	return x, err
}

func (x *learner) rows() parallel.Rows {
	if x.Away > 0 {
		return parallel.Rows{Seed: 2, N: taught, Batch: 3}
	}
	return parallel.Rows{Seed: 2, N: taught, Batch: cmp.Or(x.Batch, 48)}
}

func (x *learner) loss(_ context.Context, rows []int) (*autodiff.Tensor, error) {
	time.Sleep(x.Away)
	var in []float32
	var wants []int64
	for _, row := range rows {
		in, wants = append(in, x.data[row*x.Inputs:(row+1)*x.Inputs]...), append(wants, x.wants[row])
	}
	t := autodiff.New(in, len(rows), x.Inputs)
	if err := autodiff.NewArena("step").Adopt(t); err != nil {
		return nil, err
	}
	return autodiff.CrossEntropy(x.model.Forward(t), autodiff.New(wants)), nil
}

func (x *learner) digest() (sum float64, err error) {
	for _, p := range x.model.Params() {
		v, err := autodiff.Values[float32](p)
		if err != nil {
			return 0, err
		}
		for i, e := range v {
			sum += float64(e) * float64(i%31+1)
		}
	}
	return sum, nil
}

// enrol joins the job, the rendezvous and the team, and trains beside what goes on.
func (s *student) enrol(c context.Context, l lesson) (_ struct{}, err error) {
	s.lesson, s.more, s.done = l, make(chan struct{}), make(chan struct{})
	x, err := newLearner(l)
	if err != nil {
		return struct{}{}, err
	}
	if s.w, err = s.join(c, l); err != nil {
		return struct{}{}, err
	}
	if err := s.meet(l); err != nil {
		return struct{}{}, err
	}
	cfg := resilient.Config{Params: nn.Parameters(x.model), Optimizer: x.opt, Logger: slog.New(slog.DiscardHandler), Changed: s.changed}
	var team *resilient.Team
	if l.Comes {
		team, err = resilient.Join(c, s.w, class, cfg)
	} else {
		var g *collective.Group
		if g, err = s.found(c, l); err == nil {
			team, err = resilient.New(c, g, cfg)
		}
	}
	if err != nil {
		return struct{}{}, err
	}
	s.report.First, s.report.Coming = team.Next(), hostile.CPU()
	go func() {
		defer close(s.done)
		err := s.train(context.Background(), team, x)
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			s.report.Err = err.Error()
		}
	}()
	return struct{}{}, nil
}

// join joins a world in which workers come and go.
func (s *student) join(c context.Context, l lesson) (w *rpc.Worker, err error) {
	if s.st, err = store.Dial(context.Background(), store.ClientConfig{Addr: l.Place.Store}); err != nil {
		return nil, err
	}
	name := founder(l.Place.Rank)
	if l.Comes {
		name = fmt.Sprintf("%s-%d", name, os.Getpid())
	}
	return rpc.Join(c, rpc.Config{
		Name: name, Dynamic: true, Store: store.NewPrefix(l.Place.World, s.st), Token: l.Place.Token, Lanes: l.Place.Lanes, Logger: slog.New(slog.DiscardHandler),
	})
}

func founder(rank int) string { return fmt.Sprint("founder", rank) }

// found opens the group of the founders, once all have joined.
func (s *student) found(c context.Context, l lesson) (*collective.Group, error) {
	var names []string
	for rank := range l.Place.Size {
		names = append(names, founder(rank))
		for _, err := s.w.Find(c, founder(rank)); err != nil; _, err = s.w.Find(c, founder(rank)) {
			select {
			case <-time.After(time.Millisecond):
			case <-c.Done():
				return nil, err
			}
		}
	}
	return collective.Open(c, s.w, class, names...)
}

// meet makes this process a node of a rendezvous, which has a leader.
func (s *student) meet(l lesson) error {
	node := rdzv.Node{ID: nodeName(l.Place.Rank, os.Getpid()), Addr: "127.0.0.1", Slots: 1}
	var err error
	s.node, err = rdzv.Open(context.Background(), store.NewPrefix(meeting, s.st), meetingConfig(l.Place.Size), node, nil)
	if err == nil {
		go func() {
			for range s.node.News { // what becomes of the round is of no interest here
			}
		}()
	}
	return err
}

const meeting = "meeting"

func meetingConfig(size int) rdzv.Config {
	return rdzv.Config{Min: 1, Max: size, LastCall: 100 * time.Millisecond, Silence: time.Second}
}

func nodeName(rank, pid int) string { return fmt.Sprintf("%d-%d", rank, pid) }

func (s *student) changed(change resilient.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Changes = append(s.report.Changes, change)
}

func (s *student) train(c context.Context, team *resilient.Team, x *learner) error {
	used := hostile.CPU()
	for step := team.Next(); s.goesOn(step); step = team.Next() {
		began, before := time.Now(), used
		watch := time.AfterFunc(x.Away+long, func() { s.stuck(step) })
		loss, err := team.Step(c, step, x.rows(), x.loss)
		watch.Stop()
		if err != nil {
			return err
		}
		s.mu.Lock()
		used = hostile.CPU()
		s.report.Losses, s.report.Took, s.report.Used = append(s.report.Losses, loss), append(s.report.Took, time.Since(began)), append(s.report.Used, used-before)
		s.step = step + 1
		close(s.more)
		s.more = make(chan struct{})
		s.mu.Unlock()
		time.Sleep(s.lesson.Pace - time.Since(began)) // it is how long a step takes
	}
	var err error
	s.report.Digest, err = x.digest()
	return errors.Join(err, team.Close(c))
}

// long is how long a step does not take, but for what its rows take.
const long = time.Second

// stuck notes what this process waits for in a step that takes long.
func (s *student) stuck(step uint64) {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.report.Stuck == "" {
		s.report.Stuck = fmt.Sprintf("step %d takes more than %v:\n%s", step, s.lesson.Away+long, stacks)
	}
}

// pause lets no further step begin, and says how many have been made.
func (s *student) pause(context.Context, struct{}) (steps uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pauses = make(chan struct{})
	return s.step, nil
}

// stop says how many steps are made, to one that pauses.
func (s *student) stop(_ context.Context, steps uint64) (struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = steps
	close(s.pauses)
	return struct{}{}, nil
}

// goesOn says whether to make a step. It may wait for that.
func (s *student) goesOn(step uint64) bool {
	s.mu.Lock()
	pauses := s.pauses
	s.mu.Unlock()
	if pauses != nil {
		<-pauses
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last == 0 || step < s.last
}

// until waits until a step is made, and says how far the student is.
func (s *student) until(c context.Context, step uint64) (uint64, error) {
	for {
		s.mu.Lock()
		now, more := s.step, s.more
		s.mu.Unlock()
		if now >= step {
			return now, nil
		}
		select {
		case <-more:
		case <-s.done:
			return s.step, nil
		case <-c.Done():
			return 0, context.Cause(c)
		}
	}
}

// tell is what the student has made so far.
func (s *student) tell(context.Context, struct{}) (report, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.report, nil
}

// graduate waits for the end.
func (s *student) graduate(c context.Context, _ struct{}) (report, error) {
	select {
	case <-s.done:
	case <-c.Done():
		return report{}, context.Cause(c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.report, errors.Join(s.w.Close(), s.st.Close())
}

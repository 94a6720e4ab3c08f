package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/elastic/checkpoint"
	"github.com/weft-project/weft/examples/internal/program"
	"github.com/weft-project/weft/examples/internal/table"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel/resilient"
)

// trainer is one worker, for the life of its process.
type trainer struct {
	settings
	history
	data   *table.Data
	model  nn.Sequential
	opt    *optim.Local
	saved  *checkpoint.Dir
	saving saving
	out    *reporter

	last    elastic.Place // in which it has trained; zero before
	stepped time.Time     // when its latest step was made
	from    string        // where it begins
	had     uint64        // the step to come when it was started
}

// train is a worker: it takes part in every epoch until the training is done.
func train(c context.Context, s settings, stdout io.Writer) error {
	t := &trainer{settings: s, out: newReporter(s, stdout)}
	if err := t.prepare(); errors.Is(err, errOther) {
		return program.Wrong(err)
	} else if err != nil {
		return err
	}
	m, err := elastic.Join(c)
	if err != nil {
		return err
	}
	defer m.Close() //nolint:errcheck // the agent knows when this process ends
	fmt.Fprintf(stdout, "worker %d is process %d\n", m.Place().Rank, os.Getpid())
	return resilient.Each(c, m, resilient.Config{
		Params: nn.Parameters(t.model), Optimizer: t.opt, Step: t.had, Changed: t.changed, Made: t.made,
		Save:   func() ([]byte, error) { return json.Marshal(t.history) },
		Load:   func(b []byte) error { t.history = history{}; return json.Unmarshal(b, &t.history) },
		Logger: program.Quiet(os.Stderr),
	}, t.work)
}

// prepare has the data, and the model as it is in the newest checkpoint.
func (t *trainer) prepare() (err error) {
	if t.data, err = table.Load("", t.seed); err != nil {
		return err
	}
	if t.saved, err = checkpoint.Open(t.checkpoints, checkpoint.Config{}); err != nil {
		return err
	}
	t.model = t.newModel()
	if t.opt, err = optim.NewGroups(optim.Named(t.rule(), nn.Parameters(t.model))); err != nil {
		return err
	}
	if err = t.resume(); err != nil {
		return err
	}
	t.had = uint64(len(t.Losses))
	if t.from = "from the beginning"; len(t.Losses) > 0 {
		t.from = fmt.Sprintf("from the checkpoint of step %d", len(t.Losses))
	}
	return nil
}

// work is this worker's part in one epoch.
func (t *trainer) work(c context.Context, e *elastic.Epoch, team *resilient.Team) error {
	t.begins(e, team)
	err := t.learn(c, team)
	t.last = e.Place
	if err == nil {
		err = t.conclude(c, e)
	}
	if err != nil && c.Err() == nil && !errors.Is(err, elastic.ErrOver) {
		t.out.lost(e.Rank, err)
	}
	return err
}

// begins tells how an epoch begins: each worker that has worked before, and in the first the first.
func (t *trainer) begins(e *elastic.Epoch, team *resilient.Team) {
	made := int(team.Next())
	switch {
	case team.Rank() != 0 && t.last.World == 0:
		return
	case made >= t.steps() && int(t.had) == made:
		t.out.begins(fmt.Sprintf("%s: nothing is left to train: %d epochs are made; give --epochs more", e.Change(t.last), made/t.perEpoch()), made)
		return
	case made >= t.steps():
		t.out.begins(fmt.Sprintf("%s: all %d steps are made", e.Change(t.last), made), made)
		return
	case !t.stepped.IsZero():
		t.from = fmt.Sprintf("from step %d, of which nothing is lost; stood still for %.2f s since that was made", made, time.Since(t.stepped).Seconds())
	case team.Next() != t.had:
		t.from = fmt.Sprintf("from step %d, which it has got from the others", team.Next())
	default:
		fmt.Fprintf(t.out.out, "%d rows to train on, %d to test; %d steps\n", len(t.data.Train.Y), len(t.data.Test.Y), t.steps())
	}
	t.out.begins(fmt.Sprintf("%s: %s %s", e.Change(t.last), goOn(team.Size()), t.from), made)
}

// learn makes the steps that are left. When the nodes change the step that is under way is the last
// of this epoch.
func (t *trainer) learn(c context.Context, team *resilient.Team) error {
	for step := team.Next(); step < uint64(t.steps()); step = team.Next() {
		began := time.Now()
		loss, err := team.Step(c, step, t.rows(), t.loss)
		if err != nil {
			return err
		}
		t.stepped = time.Now()
		if math.IsNaN(loss) || math.IsInf(loss, 0) {
			return elastic.Final(fmt.Errorf("the loss is %v; a smaller --lr than %g may help", loss, t.lr))
		}
		if n := int(step) + 1; team.Rank() == 0 {
			t.out.made(n, t.steps(), loss, team.Size())
			if n%t.every == 0 || n == t.steps() {
				if err := t.save(c); err != nil {
					return elastic.Final(err)
				}
			}
		}
		time.Sleep(time.Until(began.Add(t.pace)))
	}
	return nil
}

// made notes a step. All workers have the same history.
func (t *trainer) made(m resilient.Made) {
	if t.World != m.Members && t.World > 0 {
		t.Marks = append(t.Marks, mark{len(t.Losses), m.Members})
	}
	t.World, t.Losses = m.Members, append(t.Losses, m.Loss)
}

// changed tells of losses, once training has gone on after them.
func (t *trainer) changed(change resilient.Change) {
	if len(change.Lost) > 0 {
		t.out.printf("%v lost: %s with step %d; stood still for %.3f s since that was known", change.Lost, goOn(len(change.Members)), change.Step, change.Stood.Seconds())
	}
}

func goOn(workers int) string {
	if workers == 1 {
		return "1 worker goes on"
	}
	return fmt.Sprintf("%d workers go on", workers)
}

// conclude tells how good the model has become, when the last checkpoint is whole. The first worker
// that is done does so: any other may be lost before it can.
func (t *trainer) conclude(c context.Context, e *elastic.Epoch) error {
	if err := t.saving.wait(); err != nil {
		return elastic.Final(err)
	}
	me := fmt.Sprint(e.Rank)
	first, err := e.Store.CompareSet(c, "concludes", nil, []byte(me))
	if err != nil || string(first) != me {
		return err
	}
	accuracy, err := t.accuracy()
	if err != nil {
		return err
	}
	return elastic.Final(t.out.finish(accuracy, t.history))
}

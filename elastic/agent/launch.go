package agent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/elastic/internal/errorfile"
	"github.com/weft-project/weft/elastic/internal/output"
	"github.com/weft-project/weft/elastic/internal/pipe"
	"github.com/weft-project/weft/elastic/internal/process"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/lenient"
)

// worker is one start of a worker: its process, its output, and what it was told.
type worker struct {
	*process.Process
	rank           int // in its round
	since          int // 1 + the restarts of the job when it was started; 0 if it was not
	stdout, stderr *output.Lines
	errors         errorfile.File
	told           *os.File  // by which it hears of its places
	said           int       // bytes that were written there
	place          string    // the latest of it
	missed         bool      // there was no room for that, or nobody to read it
	moved          time.Time // when it was told another than the one it was started with, and was not young
	deaf           bool      // it has ended, and never asked for a place
}

// unborn stands for a worker that could not be started: nothing can be told to it, or asked of it.
func unborn(rank int) *worker {
	nothing := &output.Lines{Prefix: output.NewLabel("")}
	return &worker{Process: process.Unborn(), rank: rank, stdout: nothing, stderr: nothing}
}

// launch starts a worker in the node's place. One that cannot start has failed at once, and the
// loop hears of its end as of any other.
func (a *agent) launch(i int) {
	rank := a.node.place.First + i
	a.started = true
	p, err := a.startProcess(i, rank)
	if err != nil {
		a.procs[i] = unborn(rank)
		a.exits <- exit{localRank: i, status: process.Status{Code: process.StartCode(err)}, at: time.Now(), start: err} // there is room for one of each worker
		return
	}
	a.procs[i] = p
	a.sendPlace(i)
	a.waiters.Go(func() {
		e := exit{localRank: i, status: p.Wait(), at: time.Now()}
		a.orphans.Reaped(p.PID())
		p.Hear()
		a.exits <- e
		p.Heard()
	})
}

// startProcess starts the process of a worker. On an error nothing is left behind.
func (a *agent) startProcess(i, rank int) (w *worker, err error) {
	path, err := lookup(a.spec.Program)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, a.spec.args(i)...)
	place, told, err := os.Pipe()
	if err != nil {
		return nil, process.Remedied(fmt.Errorf("pipe: %w", err), "")
	}
	defer place.Close()
	defer func() {
		if err != nil {
			_ = told.Close()
		}
	}()
	cmd.ExtraFiles = []*os.File{place}
	asks := i == 0 && a.spec.Stdin != nil
	if asks {
		cmd.Stdin = a.spec.Stdin
	}
	files, err := a.openFiles(i)
	if err != nil {
		return nil, process.Remedied(err, "")
	}
	stdout := &output.Lines{Sink: a.show(i, Stdout), Prefix: output.NewLabel(a.spec.prefix(i, rank)), File: files.stdout, Asks: asks}
	stderr := &output.Lines{Sink: a.show(i, Stderr), Prefix: stdout.Prefix, File: files.stderr, Keep: true, Asks: asks}
	cmd.Env = append(a.spec.environ(i, *a.node.place, a.master, files.errors.Path, stdout.Sink.Terminal()), elastic.AgentVariable+"=3:"+pipe.ID(place))
	var p *process.Process
	if err = a.spec.refusal("start", rank); err == nil {
		p, err = a.orphans.Start(func() (*process.Process, error) {
			return process.Start(cmd, lenient.Crowded(a.spec.NprocPerNode, runtime.NumCPU()), stdout, stderr)
		})
	}
	if err != nil {
		files.closeAll()
		return nil, process.Remedied(err, path)
	}
	return &worker{Process: p, rank: rank, since: a.node.place.Restarts + 1, stdout: stdout, stderr: stderr, errors: files.errors, told: told}, nil
}

// refusal is what a test has the system say.
func (s Spec) refusal(step string, rank int) error {
	if s.refuses == nil {
		return nil
	}
	return s.refuses(step, rank)
}

// openFiles makes the files of a worker that is about to start.
func (a *agent) openFiles(i int) (files, error) {
	if err := a.spec.refusal("log", a.node.place.First+i); err != nil {
		return files{}, err
	}
	return a.spec.Logs.openFiles(a.logs, a.node.place.Round, a.node.place.Restarts, i, a.lose)
}

// show is where a stream of a worker is shown.
func (a *agent) show(i int, stream Streams) *output.Sink {
	switch {
	case a.spec.Logs.shown(i)&stream == 0:
		return a.hidden
	case stream == Stdout:
		return a.out
	}
	return a.err
}

// sendPlace tells a worker its place. One that does not listen misses it when its pipe is full.
func (a *agent) sendPlace(i int) {
	p := a.procs[i]
	place := placeOf(*a.node.place, a.epochs.now, i, a.master, a.meeting.addr)
	place.StoreTLS = a.spec.Store.TLS != nil
	b, err := json.Marshal(place)
	if err != nil || string(b) == p.place {
		return
	}
	if p.place != "" && time.Since(p.Started) >= min(young, a.patience()) {
		p.moved = time.Now()
	}
	p.place = string(b)
	taken := pipe.Offer(p.told, append(b, '\n'))
	p.said += taken
	p.missed = taken == 0
}

// behind says that a worker that has ended had asked for its place, and did not read the latest.
// Where that cannot be seen nobody was.
func (w *worker) behind() bool {
	unread := pipe.Unread(w.told)
	return pipe.Counts && unread < w.said && (unread > 0 || w.missed)
}

// deaf says that a worker never asked for its place: it has not called Join. Where that cannot be
// seen nobody is.
func (a *agent) deaf(i int) bool {
	p := a.procs[i]
	return p != nil && (p.deaf || pipe.Unread(p.told) >= max(p.said, 1))
}

// lost says of a worker that it cannot go on without a place in the round that runs.
func (a *agent) lost(i int) bool { return a.spec.Policy == rdzv.RestartGroup || a.deaf(i) }

// tellAll tells the workers that run their place, and those that wait to be started find it. Who is
// being stopped has none.
func (a *agent) tellAll() {
	if a.node.ending {
		return
	}
	for i, s := range a.node.workers {
		if s.phase == running && !s.stale {
			a.sendPlace(i)
		}
	}
	a.listen()
}

// listen has warnOfDeaf look in a while.
func (a *agent) listen() {
	if !a.warned && a.hark == nil {
		a.hark = time.After(a.patience())
	}
}

func (a *agent) patience() time.Duration { return cmp.Or(a.spec.patience, patience) }

// young is a worker that was started for the same reason for which others are: of those that die
// together each new one has another place as soon as the next one comes, and meets it.
const young = 5 * time.Second

// patience is for how long a worker that has another place may not have asked for the one it had.
const patience = 15 * time.Second

// warnOfDeaf says once that a worker whose place has changed has never asked for one: a program
// that knows nothing of Join goes on with the world as it was, and waits in vain for who has gone.
func (a *agent) warnOfDeaf() {
	a.hark = nil
	for i, s := range a.node.workers {
		p := a.procs[i]
		switch {
		case a.warned || a.node.ending:
			return
		case s.phase != running || s.stale || p.moved.IsZero() || !a.deaf(i):
		case time.Since(p.moved) < a.patience(): // it was started, or moved, since
			a.listen()
		default:
			a.warned = true
			a.say(fmt.Sprintf("%s (rank %d, pid %d) does not hear that the workers are others now, as it has not called elastic.Join; "+
				"for a program that cannot, there is --restart-policy group, which starts all of them again", workerName(p.rank), p.rank, p.PID()))
		}
	}
}

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/elastic/internal/output"
	"github.com/weft-project/weft/elastic/internal/process"
	"github.com/weft-project/weft/elastic/rdzv"
)

// Result is what became of a node's part of a job that started.
type Result struct {
	// Workers is how each worker of this node ended at last, by local rank.
	Workers []Exit
	// MasterAddr and MasterPort are where the workers' store was in the last round.
	MasterAddr string
	MasterPort int
	RunID      string
	// Restarts is how many failed workers the job has started again, as far as this node knows.
	Restarts int
	// Logs is the folder of this Run's log files, empty if there are none.
	Logs string
	// Lost is why output of the workers is not where it should be: it matches ErrOutput or
	// ErrNoReader. It is Run's error where nothing else is.
	Lost error
}

// Run runs one node's part of a job to its end: it meets the other nodes, starts the workers in
// their place, starts those again that it may, and returns when all of them and all that they
// started have ended, and the job is over on all nodes. The error is nil if every worker's last
// exit was with code 0, or spared by Spec.GoesOn; a *WorkerError where a failure of this node's
// ended the job; one that matches rdzv.ErrClosed where another node's did; context.Cause(c) if c
// ended this node's part first, which the other nodes take as a leave, or an error of its own if
// Spec.Abort did, or one that matches ErrNoReader; one that matches ErrOutput where all ended well,
// but what they wrote is not where it should be; and one that matches ErrInvalidSpec if nothing was
// started because of the spec. The Result is nil only if no worker was to start yet.
func Run(c context.Context, spec Spec) (*Result, error) {
	defer spec.Probe.end()
	spec, err := spec.populate().given()
	if err := spec.validate(err); err != nil {
		return nil, err
	}
	if c.Err() != nil {
		return nil, context.Cause(c)
	}
	spec, err = spec.MakeSecrets()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidSpec, err)
	}
	folder, err := spec.Logs.folder(spec.RunID)
	if err != nil {
		return nil, err
	}
	a := newAgent(spec)
	if folder != nil {
		defer folder.Close()
		a.logs, a.result.Logs = folder, folder.Name()
	}
	defer a.orphans.ReapEnded()
	a.setStage(stageMeeting)
	log := slog.New(awayNews{a.say, spec.storeName()})
	if spec.Store.Logger == nil {
		spec.Store.Logger = log
	}
	m, err := meet(c, &spec, a.say, log)
	if err != nil {
		a.drainOutput(c, nil)
		return nil, err
	}
	defer func() {
		a.setStage(stageParting)
		m.leave()
	}()
	a.spec, a.meeting = spec, m

	// The kernel ties "die with the parent" to the thread that starts a process, so this thread
	// stays until the end.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if spec.Token == "" && spec.Store.TLS == nil {
		a.say("no token was given: workers that use Weft's rpc will not start; for them set $" + elastic.TokenVariable + " alike on all nodes, " +
			"or $" + elastic.TokenFileVariable + " (--token-file of weft run); weft token -o FILE makes one")
	}
	if folder != nil {
		a.say("log files are in " + folder.Name())
	}
	err = a.watch(c)
	if !a.started {
		return nil, err
	}
	a.result.Lost = a.unwritten()
	return a.result, cmp.Or(err, a.result.Lost)
}

var errAborted = errors.New("ended at once, as asked")

// agent is the shell around node: it owns the processes of one Run.
type agent struct {
	spec     Spec
	meeting  *meeting
	node     *node
	epochs   epochs
	logs     *os.Root // the folder of the log files, nil if there are none
	master   string   // of the workers' store in this round
	out, err *output.Sink
	hidden   *output.Sink
	losses   *losses
	orphans  *process.Orphans
	procs    []*worker
	exits    chan exit
	unread   chan Streams // which nobody reads any more
	waiters  sync.WaitGroup
	failures []Failure // the latest of each worker
	earlier  []Failure // that a later one of the same worker has replaced
	result   *Result
	started  bool
	hark     <-chan time.Time // when workers should have asked for their places; nil while nobody waits for that
	warned   bool             // of one that did not
	waits    rdzv.ActionKind  // the latest of Place, Wait and Spare
	failure  error            // that ended the job, or this node's part
}

type exit struct {
	localRank int
	status    process.Status
	at        time.Time
	start     error // why it could not be started, nil if it was
}

func newAgent(spec Spec) *agent {
	unread := make(chan Streams, 2)
	lost := &losses{}
	out, err := output.NewSinks(spec.Stdout, spec.Stderr)
	for stream, sink := range map[Streams]*output.Sink{Stdout: out, Stderr: err} {
		sink.Lost = func(err error) { lost.record(stream.name(), err) }
		sink.Unread = func() { unread <- stream } // there is room for one word of each
	}
	return &agent{
		orphans: process.NewOrphans(spec.Adopts), unread: unread,
		spec: spec, node: newNode(spec.NprocPerNode, spec.Grace),
		out:    out,
		err:    err,
		hidden: output.Hidden(),
		losses: lost,
		procs:  make([]*worker, spec.NprocPerNode), failures: make([]Failure, spec.NprocPerNode),
		exits:  make(chan exit, spec.NprocPerNode),
		result: &Result{Workers: make([]Exit, spec.NprocPerNode), RunID: spec.RunID},
	}
}

// watch carries out what the node decides until the job is over here.
func (a *agent) watch(c context.Context) error {
	cancelled, aborted, asks := c.Done(), a.spec.Abort, a.spec.Probe.questions()
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for !a.node.done() {
		a.setStage(a.node.stage())
		var due <-chan time.Time
		if !a.node.due.IsZero() {
			alarm.Reset(time.Until(a.node.due))
			due = alarm.C
		}
		select {
		case e := <-a.exits:
			a.exited(e)
		case n := <-a.meeting.news:
			a.tellChanges() // what has happened comes before what follows of it
			a.heard(n)
		case s := <-a.meeting.rdzv.Bulletins:
			if a.epochs.heard(s) {
				a.tellAll()
			}
		case ch := <-a.meeting.rdzv.Changes:
			a.note(ch.Round, ch.What)
		case <-a.hark:
			a.warnOfDeaf()
		case answer := <-asks:
			answer <- a.status()
		case <-cancelled:
			cancelled = nil
			a.leaves(context.Cause(c))
		case stream := <-a.unread:
			a.deserted(stream)
		case <-aborted:
			aborted = nil
			if a.failure == nil {
				a.failure = cmp.Or(context.Cause(c), errAborted)
			}
			a.perform(a.node.abort("asked to end at once"))
		case <-due:
			a.perform(a.node.expire(time.Now()))
		}
	}
	a.orphans.Kill() // what holds the output, too
	a.setStage(stageSettling)
	a.drainOutput(c, asks)
	if host, port, err := net.SplitHostPort(a.master); err == nil {
		a.result.MasterAddr = host
		a.result.MasterPort, _ = strconv.Atoi(port)
	}
	return a.failure
}

// tellChanges tells people what has become of other nodes by now.
func (a *agent) tellChanges() {
	for {
		select {
		case ch := <-a.meeting.rdzv.Changes:
			a.note(ch.Round, ch.What)
		default:
			return
		}
	}
}

// leaves ends this node's part before the job is over. What has ended it already stays the reason.
func (a *agent) leaves(why error) {
	if a.failure == nil {
		a.failure, a.meeting.why = why, why.Error()
	}
	a.perform(a.node.end(time.Now(), why.Error()))
}

// heard takes what the rendezvous says.
func (a *agent) heard(n news) {
	now := time.Now()
	switch {
	case n.err != nil:
		a.ends(now, n.err)
	case n.Kind == rdzv.Place && n.coming:
		a.perform(a.node.coming(now, n.Placement, n.Why, a.deaf).stamped(now))
	case n.Kind == rdzv.Place:
		if a.master != n.master && (a.spec.proof != "" && !a.spec.TokenMade || !a.spec.alone()) { // without a known token nobody could look into it
			a.say("the workers' store is tcp://" + n.master)
		}
		a.master, a.waits = n.master, n.Kind
		a.result.Restarts = n.Placement.Restarts
		for i, p := range a.procs { // who runs may have another rank now
			if p != nil && a.node.workers[i].phase == running {
				p.rank = n.Placement.First + i
				p.stdout.Prefix.Set(a.spec.prefix(i, p.rank))
			}
		}
		if a.node.place != nil {
			a.note(n.Placement.Round, fmt.Sprintf("%s, %s; this is node %d", count(n.Placement.Nodes, "node"), plural(n.Placement.World), n.Placement.Rank))
		}
		a.epochs.placed(n.Placement)
		a.perform(a.node.placed(n.Placement))
		a.tellAll()
	case n.Kind == rdzv.Restart:
		a.note(n.Placement.Round, fmt.Sprintf("starting it again, restart %d of %d: %s", n.Placement.Restarts, n.Placement.MaxRestarts, n.Why))
		a.result.Restarts = n.Placement.Restarts
		a.perform(a.node.restart(n.Nth, n.Placement))
	case n.Kind == rdzv.Finished || n.Kind == rdzv.Refuse:
		a.result.Restarts = max(a.result.Restarts, n.Placement.Restarts) // the end may overtake the leave to restart
		a.ends(now, n.Err)
	case n.Kind == rdzv.Wait && a.waits != rdzv.Wait:
		a.waits = n.Kind
		a.say("this node waits for the next round")
		a.perform(a.node.outside(now, a.lost).stamped(now))
	case n.Kind == rdzv.Spare && a.waits != rdzv.Spare:
		a.waits = n.Kind
		a.say("this node is redundant for now: the job has as many as it may; it steps in when one of them is gone")
		a.perform(a.node.outside(now, a.lost).stamped(now))
	}
}

// ends ends this node's part; err is nil if all is well.
func (a *agent) ends(now time.Time, err error) {
	why := "the job is over"
	if err != nil {
		why = err.Error()
	}
	switch { // Run's error says more
	case errors.Is(err, rdzv.ErrClosed):
		why = "the job has failed"
	case errors.Is(err, rdzv.ErrNoStore):
		why = "the rendezvous is lost"
	}
	hint := ""
	if worker := a.blame(err); worker != nil {
		if first := worker.outlived(); first != "" && a.spec.Policy == rdzv.ReplaceWorker {
			hint = fmt.Sprintf("%s ran when %s failed; if workers of this program give up when another is lost, "+
				"--restart-policy group starts all of them again, for one restart", worker.Name(), first)
		}
		err, why = worker, worker.brief()
		if a.spec.MaxRestarts > 0 {
			why += "; " + rdzv.Spent(a.spec.MaxRestarts)
		}
	}
	if a.failure == nil {
		a.failure = err
	}
	a.perform(a.node.end(now, why))
	a.say(hint)
}

// blame is the error of a job that a failure of this node's has ended, nil if err says something
// else. err names a failure for which no restart was left. With it count those that came after it:
// the first in time is to blame, whichever the job heard of first. The worker of the named one may
// run again, with the whole group. Where err names none of ours, another node's failure has ended
// the job.
func (a *agent) blame(err error) *WorkerError {
	if !errors.Is(err, rdzv.ErrClosed) {
		return nil
	}
	named := slices.IndexFunc(a.failures, func(f Failure) bool { return f.nth > 0 && strings.Contains(err.Error(), f.brief()) })
	if named < 0 && a.spec.MaxRestarts > 0 {
		return nil
	}
	var ended []Failure
	earlier := slices.Clone(a.earlier)
	for i, f := range a.failures {
		switch {
		case f.nth == 0:
		case i == named, a.node.workers[i].phase == broken && (named < 0 || f.nth > a.failures[named].nth):
			ended = append(ended, f)
		default:
			earlier = append(earlier, f)
		}
	}
	if ended == nil {
		return nil
	}
	return newWorkerError(ended, earlier...)
}

func (a *agent) exited(e exit) {
	p := a.procs[e.localRank]
	w := Exit{Rank: p.rank, LocalRank: e.localRank, PID: p.PID(), Code: e.status.Code, Signal: e.status.Signal}
	a.result.Workers[e.localRank] = w
	p.deaf = a.deaf(e.localRank)
	behind := p.behind()
	_ = p.told.Close()
	why := w.String()
	if !e.status.OK() {
		f := Failure{Exit: w, Start: e.start, Round: a.node.place.Round, deaf: p.deaf, Stderr: p.stderr.Tail(), ErrorFile: p.errors.Name(), LogFile: p.stderr.File.Name()}
		f.addErrorFile(p.errors.Read(), p.Started, e.at)
		if old := a.failures[e.localRank]; old.nth > 0 {
			if a.earlier = append(a.earlier, old); len(a.earlier) > maxEarlier {
				a.earlier = slices.Delete(a.earlier, 1, 2)
			}
		}
		a.failures[e.localRank], why = f, f.brief()
		a.overtaken(f)
	}
	p.errors.Close()
	running := a.node.workers[e.localRank].phase == running && !a.node.ending && !a.node.workers[e.localRank].stale
	spared := !e.status.OK() && running && a.spec.GoesOn != nil && a.spec.GoesOn(w)
	d := a.node.exited(e.localRank, e.status, spared, behind, why)
	if d.fail != nil {
		a.failures[e.localRank].nth = d.fail.nth
	}
	a.perform(d)
}

// overtaken puts a failure that is seen after another one has ended the job in its place, if it is
// the cause of that.
func (a *agent) overtaken(f Failure) {
	ended := new(WorkerError)
	if a.node.killed || !errors.As(a.failure, &ended) || !f.overtakes(ended.Failure) {
		return
	}
	a.failure = newWorkerError(slices.Concat([]Failure{ended.Failure, f}, ended.Others), ended.Earlier...)
}

func (a *agent) perform(d decision) {
	a.say(d.reason)
	for _, o := range d.orders {
		switch o.deed {
		case launch:
			a.launch(o.rank)
		case terminate, kill:
			a.procs[o.rank].Signal(o.deed == kill)
		}
	}
	if d.fail != nil {
		if a.spec.MaxRestarts > 0 {
			a.note(a.node.place.Round, d.fail.why)
		}
		p, since := a.procs[d.fail.rank], 0
		if p.deaf { // it cannot go on without a worker that was lost
			since = p.since
		}
		a.meeting.rdzv.Fail(a.node.place.Round, p.rank, d.fail.nth, since, d.fail.why)
	}
	if d.done {
		a.meeting.rdzv.Done(a.node.place.Round)
	}
	if d.clear {
		a.meeting.clear(a.node.next.Round)
	}
}

// note says at what time, and of which round, something has happened.
func (a *agent) note(round int, what string) {
	a.say(stamp(time.Now(), fmt.Sprintf("round %d: %s", round, what)))
}

// lose takes an error of a log file.
func (a *agent) lose(err error) {
	a.losses.record("log files", err)
	a.say(err.Error())
}

func (a *agent) say(what string) {
	if what != "" {
		a.err.Say(what)
	}
}

// nodeID names this life of this agent.
func nodeID(addr string) string {
	return fmt.Sprintf("%s_%d_%s", addr, os.Getpid(), randomHex(4))
}

package elastic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/weft-project/weft/store"
)

// Result is what became of a job that started.
type Result struct {
	// Workers is how each worker ended, by local rank.
	Workers []Exit
	// MasterAddr and MasterPort are where the job's store was.
	MasterAddr string
	MasterPort int
	RunID      string
}

// Run runs one node's part of a job to its end: it hosts the store, starts the workers, and returns when all of them and
// all that they started have ended. The error is nil if every worker exited with code 0, or was spared by Spec.GoesOn; a *WorkerError for the
// first that did not; context.Cause(c) if c ended the job first; and one that matches ErrInvalidSpec if nothing was
// started because of the spec. The Result is nil only if the job did not start.
func Run(c context.Context, spec Spec) (*Result, error) {
	spec = spec.populate()
	if err := spec.validate(); err != nil {
		return nil, err
	}
	if c.Err() != nil {
		return nil, context.Cause(c)
	}
	spec = spec.makeSecrets()
	server, err := serve(&spec)
	if err != nil {
		return nil, err
	}
	defer func() { _ = server.Close() }() // the keys go with the job

	// The kernel ties "die with the parent" to the thread that starts a process, so this thread stays until the end.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	a := newAgent(spec)
	if err := a.start(); err != nil {
		return nil, err
	}
	return a.watch(c)
}

// serve starts the job's store and notes in the spec which port it got.
func serve(spec *Spec) (*store.Server, error) {
	cfg := spec.Store
	cfg.Addr = net.JoinHostPort(spec.MasterAddr, strconv.Itoa(spec.MasterPort))
	server, err := store.Serve(cfg)
	if err != nil {
		return nil, fmt.Errorf("elastic: the job's store cannot listen on %s, port %d; give another port, or 0 for a free one: %w",
			spec.MasterAddr, spec.MasterPort, err)
	}
	_, port, err := net.SplitHostPort(server.Addr())
	if err == nil {
		spec.MasterPort, err = strconv.Atoi(port)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("elastic: the store's address: %w", err), server.Close())
	}
	return server, nil
}

// agent is the shell around group: it owns the processes of one Run.
type agent struct {
	spec     Spec
	out, err *sink
	procs    []*process
	exits    chan exit
	waiters  sync.WaitGroup
}

type exit struct {
	localRank int
	status    status
}

func newAgent(spec Spec) *agent {
	shared := &screen{}
	return &agent{
		spec:  spec,
		out:   &sink{screen: shared, w: spec.Stdout, terminal: isTerminal(spec.Stdout)},
		err:   &sink{screen: shared, w: spec.Stderr, terminal: isTerminal(spec.Stderr)},
		exits: make(chan exit, spec.NprocPerNode),
	}
}

// start starts every worker, or none.
func (a *agent) start() error {
	path, err := lookup(a.spec.Program)
	for i := 0; i < a.spec.NprocPerNode && err == nil; i++ {
		cmd := exec.Command(path, a.spec.args(i)...)
		cmd.Env = a.spec.environ(i, a.out.terminal)
		prefix := "[" + strconv.Itoa(a.spec.rank(i)) + "] "
		if a.spec.NoPrefix {
			prefix = ""
		}
		var p *process
		p, err = start(cmd, &lines{sink: a.out, prefix: prefix}, &lines{sink: a.err, prefix: prefix, keep: true})
		if err != nil {
			err = fmt.Errorf("%s did not start: %w", workerName(a.spec.rank(i)), err)
			break
		}
		a.procs = append(a.procs, p)
		a.waiters.Go(func() { a.exits <- exit{i, p.wait()} })
	}
	if err != nil {
		for _, p := range a.procs {
			p.signal(true)
		}
		a.waiters.Wait()
		finish(a.procs)
	}
	return err
}

// watch carries out what the group decides until every worker has ended.
func (a *agent) watch(c context.Context) (*Result, error) {
	g := newGroup(len(a.procs), a.spec.Grace)
	result := &Result{Workers: make([]Exit, len(a.procs)), MasterAddr: a.spec.MasterAddr, MasterPort: a.spec.MasterPort,
		RunID: a.spec.RunID}
	cancelled := c.Done()
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for !g.done() {
		var due <-chan time.Time
		if !g.deadline.IsZero() {
			alarm.Reset(time.Until(g.deadline))
			due = alarm.C
		}
		select {
		case e := <-a.exits:
			w := a.exit(e)
			result.Workers[e.localRank] = w
			spared := !e.status.ok() && !g.stopping && a.spec.GoesOn != nil && a.spec.GoesOn(w)
			a.do(g.exited(time.Now(), e.localRank, e.status, spared, w.String()))
		case <-cancelled:
			cancelled = nil
			a.do(g.stop(time.Now(), context.Cause(c).Error()))
		case <-due:
			a.do(g.expire(time.Now()))
		}
	}
	a.waiters.Wait()
	finish(a.procs)
	a.out.settle()
	a.err.settle()
	switch {
	case g.first >= 0:
		return result, &WorkerError{result.Workers[g.first], a.procs[g.first].stderr.Tail()}
	case g.stopping:
		return result, context.Cause(c)
	}
	return result, nil
}

func (a *agent) exit(e exit) Exit {
	return Exit{
		Rank: a.spec.rank(e.localRank), LocalRank: e.localRank, PID: a.procs[e.localRank].cmd.Process.Pid,
		Code: e.status.code, Signal: e.status.signal,
	}
}

func (a *agent) do(d decision) {
	if d.reason != "" {
		a.err.put("weft: ", []byte(d.reason), false)
	}
	for _, o := range d.orders {
		a.procs[o.rank].signal(o.kill)
	}
}

package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// How long is waited for what does not end at once.
const (
	quitting = time.Second            // after SIGQUIT, for a step that is late to say where it is
	patience = drain + time.Second    // after a step was killed
	lastWord = time.Second            // for what it had printed
	sameTime = 200 * time.Millisecond // between a signal that a step gets and the same one to this process: who ends a whole machine signals all
)

// run runs a step in dir, for at most limit, below a process that ends all that it leaves behind.
// Ends c, so does the step.
func (s step) run(c context.Context, dir string, limit time.Duration, env []string) ending {
	program := s.argv[0]
	if !filepath.IsAbs(program) {
		program = filepath.Join(dir, program)
	}
	if _, err := os.Stat(program); err != nil {
		return ending{err: err.Error()}
	}
	p, err := s.start(program, dir, env)
	if err != nil {
		return ending{err: err.Error()}
	}
	defer p.closePipes()
	timed, cancel := context.WithTimeout(c, limit)
	defer cancel()
	var e ending
	select {
	case <-p.gone:
	case <-timed.Done():
		e.stopped = c.Err() != nil
		e.late = !e.stopped
	}
	if e.late {
		p.quit()
	}
	e.stuck = !p.stop()
	p.reportEnd(&e)
	e.unsaid = s.last != "" && !p.said.has(s.last)
	if slices.Contains([]syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}, e.signal) {
		select {
		case <-c.Done():
			e.stopped = true
		case <-time.After(sameTime):
		}
	}
	return e
}

// process is a step that runs.
type process struct {
	cmd   *exec.Cmd
	keep  *os.File // the step ends when this is closed
	gone  chan struct{}
	pipes []*os.File // the ends here: to its standard input, of its output, of its errors, of held
	said  said
	read  sync.WaitGroup
}

// start starts the step.
func (s step) start(program, dir string, env []string) (p *process, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p = &process{cmd: exec.Command(self, append([]string{"hold", program}, s.argv[1:]...)...), gone: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Env = slices.Concat(os.Environ(), env, s.env, []string{selfEnv + "=1"})
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var theirs []*os.File // ends of pipes
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
		if err != nil {
			p.closePipes()
		}
	}()
	for k := range 4 {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		ours, its := r, w
		if k == 0 {
			ours, its = w, r
		}
		p.pipes, theirs = append(p.pipes, ours), append(theirs, its)
	}
	p.keep = p.pipes[0]
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr, p.cmd.ExtraFiles = theirs[0], theirs[1], theirs[2], theirs[3:]
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.read.Go(func() {
		if !s.lines {
			_, _ = io.Copy(textWriter{&p.said}, p.pipes[1])
			return
		}
		w := &splitter{to: &p.said}
		_, _ = io.Copy(w, p.pipes[1])
		w.flush()
	})
	p.read.Go(func() { _, _ = io.Copy(textWriter{&p.said}, p.pipes[2]) })
	go func() {
		_ = p.cmd.Wait()
		close(p.gone)
	}()
	return p, nil
}

// quit has a program of Go say where it is.
func (p *process) quit() {
	_, _ = p.keep.Write([]byte{0})
	select {
	case <-p.gone:
	case <-time.After(quitting):
	}
}

// stop ends the step, where it has not ended, and says whether it is gone.
func (p *process) stop() bool {
	_ = p.keep.Close()
	select {
	case <-p.gone:
		return true
	case <-time.After(patience):
	}
	_ = p.cmd.Process.Kill()
	return false
}

// reportEnd says how the step ended, and what it had printed.
func (p *process) reportEnd(e *ending) {
	for _, f := range p.pipes[1:] {
		_ = f.SetReadDeadline(time.Now().Add(lastWord)) // what cannot be ended has them open still
	}
	p.read.Wait()
	var h held
	switch err := json.NewDecoder(p.pipes[3]).Decode(&h); {
	case err == nil:
		e.err, e.code, e.signal, e.left, e.stuck = h.Err, h.Code, h.Signal, h.Left, e.stuck || h.Stuck
	case !e.late && !e.stopped: // somebody killed the process between
		e.signal = syscall.SIGKILL
	}
	e.text, e.lines = p.said.String(), p.said.lines
}

// closePipes closes the ends of pipes that are here.
func (p *process) closePipes() {
	for _, f := range p.pipes {
		_ = f.Close()
	}
}

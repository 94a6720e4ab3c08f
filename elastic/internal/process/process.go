package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/weft-project/weft/internal/lenient"
)

const (
	// Drain is how long output may still come after a worker has ended. Only a process that left
	// its worker's process group can hold the pipe open that long.
	Drain = time.Second
	// pause is the silence after which such a process is taken to have said what belongs to the
	// worker's end.
	pause = 100 * time.Millisecond
	// maxPipe is the most that lies in a pipe unread, as far as Linux lets an ordinary user choose.
	maxPipe = 1 << 20
)

// Status is how a process ended: a signal, or an exit code.
type Status struct {
	Code   int // exit code; 128 + the signal's number where a signal ended it
	Signal int // 0 if it exited by itself
}

// OK says that the process succeeded.
func (s Status) OK() bool { return s.Code == 0 && s.Signal == 0 }

// Process is one worker: a process that leads its own group, and the two goroutines that read its
// output.
type Process struct {
	Started time.Time

	cmd            *exec.Cmd
	pipes          []*os.File     // the read ends
	readers, words sync.WaitGroup // until the output has ended, and until all is read that was written before the process ended
	drain          time.Duration

	mu   sync.Mutex
	gone bool // the process is about to be reaped: its id may soon be another's
}

// Start runs cmd and the readers of its output, which each close what they write to at its end;
// crowded says that the worker has no core for itself. On an error nothing is left behind.
func Start(cmd *exec.Cmd, crowded bool, stdout, stderr io.WriteCloser) (*Process, error) {
	p := &Process{cmd: cmd, Started: time.Now(), drain: Drain}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pipe: %w", err), outR.Close(), outW.Close())
	}
	p.pipes = []*os.File{outR, errR}
	cmd.Stdout, cmd.Stderr = outW, errW
	setGroup(cmd)
	if crowded {
		err = lenient.Start(cmd)
	} else {
		err = cmd.Start()
	}
	_, _ = outW.Close(), errW.Close()
	if err != nil {
		p.closePipes()
		return nil, err
	}
	p.read(outR, stdout)
	p.read(errR, stderr)
	return p, nil
}

// Unborn stands for a process that could not be started: no signal reaches it.
func Unborn() *Process { return &Process{cmd: &exec.Cmd{}, Started: time.Now(), gone: true} }

// PID is the process's id, 0 of one that could not be started.
func (p *Process) PID() int {
	if p.cmd.Process == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// read takes a stream to its end. Where that does not come soon after the process has ended, as one
// that left its group holds the stream open, what belongs to the end is what is there already; more
// may come for a while.
func (p *Process) read(from *os.File, to io.WriteCloser) {
	p.words.Add(1)
	p.readers.Go(func() {
		defer from.Close()
		defer to.Close()
		_, err := io.Copy(to, from)
		if errors.Is(err, os.ErrDeadlineExceeded) { // whoever reads the output may have been slow
			_ = from.SetReadDeadline(time.Now().Add(pause))
			_, err = io.Copy(to, io.LimitReader(from, maxPipe))
		}
		p.words.Done()
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			_ = from.SetReadDeadline(time.Now().Add(p.drain))
			_, _ = io.Copy(to, from)
		}
	})
}

// Hear returns when all is read that the process wrote before it ended, or after drain: whoever
// reads the output may keep it waiting.
func (p *Process) Hear() {
	for _, f := range p.pipes {
		if f.SetReadDeadline(time.Now().Add(pause)) != nil { // here pipes have none
			time.AfterFunc(p.drain, p.closePipes)
			break
		}
	}
	heard := make(chan struct{})
	go func() { p.words.Wait(); close(heard) }()
	late := time.NewTimer(p.drain)
	defer late.Stop()
	select {
	case <-heard:
	case <-late.C:
	}
}

// Heard blocks until the output has ended, or until Drain has passed since Hear.
func (p *Process) Heard() { p.readers.Wait() }

// Wait blocks until the process has ended, kills what is left of its group, and says how it ended.
func (p *Process) Wait() Status {
	early := awaitExit(p.cmd.Process.Pid)
	if early {
		p.killRest()
	}
	_ = p.cmd.Wait() // the state says more than the error
	if !early {
		p.killRest()
	}
	if p.cmd.ProcessState == nil { // somebody else has waited for it
		return Status{Code: 255}
	}
	return statusOf(p.cmd.ProcessState)
}

func (p *Process) killRest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	signalGroup(p.cmd.Process.Pid, true)
	p.gone = true
}

// Signal sends SIGTERM, or SIGKILL, to the whole group, unless the process has ended.
func (p *Process) Signal(kill bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		signalGroup(p.cmd.Process.Pid, kill)
	}
}

func (p *Process) closePipes() {
	for _, f := range p.pipes {
		_ = f.Close()
	}
}

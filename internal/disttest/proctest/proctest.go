package proctest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

const variable = "WEFT_PROCTEST"

// ErrEnded is the error of commands to a process that has ended.
var ErrEnded = errors.New("the process has ended")

// Command runs in the other process; c ends with the process's standard input.
type Command func(c context.Context, arg json.RawMessage) (any, error)

// Do makes a Command of a function with types.
func Do[In, Out any](fn func(c context.Context, in In) (Out, error)) Command {
	return func(c context.Context, arg json.RawMessage) (any, error) {
		var in In
		if err := json.Unmarshal(arg, &in); err != nil {
			return nil, err
		}
		return fn(c, in)
	}
}

type request struct {
	ID      int
	Command string
	Arg     json.RawMessage
}

type reply struct {
	ID    int
	Error string          `json:",omitempty"`
	Value json.RawMessage `json:",omitempty"`
}

// Main runs the tests, or serves commands where this process was started by Start.
func Main(m *testing.M, commands map[string]Command) {
	if os.Getenv(variable) == "" {
		os.Exit(m.Run())
	}
	if err := serve(commands); err != nil {
		fmt.Fprintln(os.Stderr, "proctest:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Together has so many tests that call t.Parallel run at a time, if the command line does not say
// how many: those that wait for other processes need no processor each. It is for a TestMain.
func Together(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(n)) // it is there in every test
	}
}

func serve(commands map[string]Command) error {
	c, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var mu sync.Mutex // guards out
	out := json.NewEncoder(os.Stdout)
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	for {
		var r request
		if err := in.Decode(&r); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		wg.Go(func() {
			answer := run(c, commands[r.Command], r)
			mu.Lock()
			defer mu.Unlock()
			_ = out.Encode(answer) // nobody is there to hear of it
		})
	}
}

func run(c context.Context, command Command, r request) reply {
	answer := reply{ID: r.ID}
	if command == nil {
		answer.Error = fmt.Sprintf("no command %q", r.Command)
		return answer
	}
	value, err := command(c, r.Arg)
	if err == nil {
		answer.Value, err = json.Marshal(value)
	}
	if err != nil {
		answer.Error = err.Error()
	}
	return answer
}

// Proc is another process.
type Proc struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	ended chan struct{} // closed when it is reaped
	err   error         // how it ended; set before ended is closed

	mu      sync.Mutex
	counter int
	waiting map[int]chan reply
}

// Start starts a process. change may be nil, and set what is special about it: its environment,
// namespaces. At the end of t the process ends; t fails where it ended badly before anybody killed
// it.
func Start(t testing.TB, change func(*exec.Cmd)) *Proc {
	t.Helper()
	p, err := start(change)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.End(); err != nil {
			t.Errorf("another process ended badly: %v", err)
		}
	})
	return p
}

func start(change func(*exec.Cmd)) (*Proc, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	// The race detector makes every exit take a second otherwise.
	cmd.Env = append(os.Environ(), variable+"=1", "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	if change != nil {
		change(cmd)
	}
	p := &Proc{cmd: cmd, ended: make(chan struct{}), waiting: map[int]chan reply{}}
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go p.listen(out)
	return p, nil
}

// listen hands out replies until the process ends.
func (p *Proc) listen(out io.Reader) {
	in := json.NewDecoder(bufio.NewReader(out))
	for {
		var r reply
		if err := in.Decode(&r); err != nil {
			break
		}
		p.mu.Lock()
		if to := p.waiting[r.ID]; to != nil {
			to <- r
			delete(p.waiting, r.ID)
		}
		p.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, out)
	p.err = p.cmd.Wait()
	close(p.ended)
}

// Ask has the process run a command and stores what it gives in into, unless that is nil.
func (p *Proc) Ask(c context.Context, command string, arg, into any) error {
	raw, err := json.Marshal(arg)
	if err != nil {
		return err
	}
	answer := make(chan reply, 1)
	p.mu.Lock()
	p.counter++
	id := p.counter
	p.waiting[id] = answer
	err = json.NewEncoder(p.in).Encode(request{id, command, raw})
	p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", command, errors.Join(ErrEnded, err))
	}
	select {
	case r := <-answer:
		if r.Error != "" {
			return fmt.Errorf("%s: %s", command, r.Error)
		}
		if into == nil {
			return nil
		}
		return json.Unmarshal(r.Value, into)
	case <-p.ended:
		return fmt.Errorf("%s: %w", command, ErrEnded)
	case <-c.Done():
		return fmt.Errorf("%s: %w", command, context.Cause(c))
	}
}

// PID of the process.
func (p *Proc) PID() int { return p.cmd.Process.Pid }

// Kill ends the process with SIGKILL and waits for it.
func (p *Proc) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.ended
}

// End closes the process's standard input and waits for it. The error says how it ended, unless
// that was by SIGKILL or SIGTERM.
func (p *Proc) End() error {
	_ = p.in.Close()
	<-p.ended
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() && (s.Signal() == syscall.SIGKILL || s.Signal() == syscall.SIGTERM) {
			return nil
		}
	}
	return p.err
}

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/weft-project/weft/store"
)

// roleVariable makes this program one of the processes that are measured.
const roleVariable = "WEFT_BENCH_STORE_ROLE"

// patience bounds every operation.
const patience = time.Minute

// process is one that was started here, or with an address alone one that was not.
type process struct {
	cmd  *exec.Cmd
	hold io.Closer // its standard input, whose end tells a server to go
	out  *bufio.Reader
	addr string // of a server
}

// start starts a role, and reads a server's address.
func start(c context.Context, role string, args ...string) (*process, error) {
	return startBy(c, (*exec.Cmd).Start, role, args...)
}

// startBy is start with another way to begin the process.
func startBy(c context.Context, begin func(*exec.Cmd) error, role string, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(c, self, args...)}
	p.cmd.Env = append(os.Environ(), roleVariable+"="+role)
	p.cmd.Stderr = os.Stderr
	in, errIn := p.cmd.StdinPipe()
	out, errOut := p.cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		return nil, err
	}
	p.hold, p.out = in, bufio.NewReader(out)
	if err := begin(p.cmd); err != nil {
		return nil, err
	}
	if role == "client" {
		return p, nil
	}
	if p.addr, err = p.out.ReadString('\n'); err != nil {
		return nil, errors.Join(fmt.Errorf("the server does not say where it is: %w", err), p.stop())
	}
	p.addr = strings.TrimSpace(p.addr)
	return p, nil
}

func (p *process) stop() error {
	_ = p.hold.Close()
	return p.cmd.Wait()
}

var errNotOurs = errors.New("what a server takes that was not started here is not known")

// resident is how many bytes of memory the process has now.
func (p *process) resident() (int64, error) {
	if p.cmd == nil {
		return 0, errNotOurs
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kib, err := strconv.ParseInt(number, 10, 64)
	return kib << 10, err
}

// busy is how long the process has kept processors, to a hundredth of a second.
func (p *process) busy() (time.Duration, error) {
	if p.cmd == nil {
		return 0, errNotOurs
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), ") ") // behind the name, which may hold anything
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("expected more of /proc/%d/stat than %q", p.cmd.Process.Pid, b)
	}
	user, errUser := strconv.ParseInt(fields[11], 10, 64)
	system, errSystem := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(errUser, errSystem)
}

// play is the life of a process that was started by start.
func play(role string, args []string) error {
	switch role {
	case "serve", "serve-tls", "serve-unix":
		s, end, err := serve(role)
		if err != nil {
			return err
		}
		defer end()
		fmt.Println(s.Addr())
		_, _ = io.Copy(io.Discard, os.Stdin)
		return s.Close()
	case "echo":
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Println(l.Addr())
		go echo(l)
		_, _ = io.Copy(io.Discard, os.Stdin)
		return l.Close()
	case "client":
		return client(args, os.Stdout)
	}
	return fmt.Errorf("%s: expected serve, serve-tls, serve-unix, echo or client, got %q", roleVariable, role)
}

// serve makes the server of a role. end is for after its Close.
func serve(role string) (s *store.Server, end func(), err error) {
	var cfg store.ServerConfig
	switch role {
	case "serve-unix":
		return serveUnix()
	case "serve-tls":
		if cfg.TLS, err = identity(); err != nil {
			return nil, nil, err
		}
	}
	s, err = store.Serve(cfg)
	return s, func() {}, err
}

// echo is the least that a server can do.
func echo(l net.Listener) {
	for {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer nc.Close()
			var b [64]byte
			for {
				n, err := nc.Read(b[:])
				if err == nil {
					_, err = nc.Write(b[:n])
				}
				if err != nil {
					return
				}
			}
		}()
	}
}

func dial(c context.Context, addr string) (*store.Client, error) {
	return store.Dial(c, store.ClientConfig{Addr: addr, Timeout: patience})
}

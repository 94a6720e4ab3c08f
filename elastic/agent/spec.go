package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/secret"
	"github.com/weft-project/weft/store"
)

// ErrInvalidSpec is matched by the error for a Spec that cannot be run; the error lists all that is
// wrong with it.
var ErrInvalidSpec = errors.New("invalid spec")

const (
	defaultGrace = 30 * time.Second
	maxWorkers   = 4096
)

// Spec says what Run is to run. Program and NprocPerNode are required; the zero value of every
// other field works.
type Spec struct {
	// Program is a path, or a name that is looked up in PATH. In Args, "${local_rank}" becomes the
	// worker's local rank.
	Program string
	Args    []string
	// NprocPerNode is the number of workers to start here, 1 to 4096.
	NprocPerNode int
	// MinNodes and MaxNodes are how many nodes the job may have; zero means one, and as many as
	// MinNodes.
	MinNodes, MaxNodes int
	// WantRank is the node rank that this node asks for, counted from 1; zero means any.
	WantRank int
	// Endpoint is the host:port of the store in which the nodes meet, which all name alike. The
	// node that can listen there hosts it. Empty is for a job of one node. Meet opens a store that
	// is there already, in its place; it is called again while the store cannot be reached, and Run
	// closes what it gives. Endpoint is then only what messages call it, and begins with a
	// host:port. Stays is how long there is left at most what nodes have there that are killed; 0
	// means that nobody knows.
	Endpoint string
	Meet     func(context.Context) (store.Store, error)
	Stays    time.Duration
	// LocalAddr is the address by which the other nodes reach this one; empty means the one by
	// which it reaches Endpoint.
	LocalAddr string
	// MaxRestarts is how many failed workers the whole job may start again, Policy what such a
	// start costs.
	MaxRestarts int
	Policy      rdzv.Policy
	// JoinTimeout, LastCall and Silence are those of the rendezvous (rdzv.Config); zero means its
	// defaults.
	JoinTimeout, LastCall, Silence time.Duration
	// RunID names the job, and is in all keys that are made of its secret; empty means a random one
	// for a job of one node without a given Token, which nobody else can join, and NoRunID for all
	// others. Role becomes ROLE_NAME; empty means "default".
	RunID string
	Role  string
	// MasterAddr and MasterPort are where the workers' store listens if this node has rank 0; empty
	// means 127.0.0.1 where there is one node, else LocalAddr, and port 0 a free one.
	MasterAddr string
	MasterPort int
	// Store says how that store is served, but for its Addr, and the one at Endpoint; without a
	// Logger their warnings go to Stderr; with its TLS this node is a client of the latter, too.
	// Where there is TLS, Env is to tell the workers so, and the store at Endpoint takes no plain
	// text, whatever Store.Plain says.
	Store store.ServerConfig
	// Token is the job's shared secret; empty means WEFT_TOKEN of Env, or the file that its
	// WEFT_TOKEN_FILE names, and where both are missing, a new one for a job of one node, and none
	// for others: then workers that use rpc end with an error, and those of other programs need
	// none. A secret that "weft token" did not make is refused where it is weak, and the workers
	// get the token that is made of it (MakeSecrets).
	Token string
	// TokenMade says that Token was made for this Run: nobody knows it but who is told by it.
	TokenMade bool
	// Stdin is what the worker of local rank 0 reads, as a debugger does; if it is started again it
	// reads on. It is to be no terminal: a worker's process is not in the terminal's foreground,
	// and would be stopped. nil, and that of all other workers, is empty.
	Stdin *os.File
	// Stdout and Stderr get the workers' output; nil means that it is dropped. They may be the same
	// writer. If Stdout is a terminal, the workers are told so by WEFT_TTY=1. Run's own messages go
	// to Stderr. Who does not read them stalls the workers, as a pipe does, but not the agent; Run
	// returns when all is written, or a second after c or Abort, and then one Write of each may
	// still be under way. Where a writer says that nobody reads any more (EPIPE, io.ErrClosedPipe)
	// this node's part ends with ErrNoReader, as if c had, but not where Logs keeps all that it was
	// to show. os.Stdout and os.Stderr say so only in a program that handles SIGPIPE.
	Stdout, Stderr io.Writer
	// Logs says what of the output is kept in files, and what is shown.
	Logs Logs
	// Prefix stands in front of each line; in it ${rank}, ${local_rank} and ${role_name} are filled
	// in. Empty means "[${rank}] ". NoPrefix leaves it out.
	Prefix   string
	NoPrefix bool
	// Adopts says that this process is the parent of every process below it that has lost its own,
	// as the first process of a container is, and one with PR_SET_CHILD_SUBREAPER. Run then reaps
	// those that end, and before it returns it kills what the workers have left, in whatever
	// session. It is for a program in which nobody else starts processes, and for one Run at a
	// time. Only Linux has it.
	Adopts bool
	// Grace is how long a worker may take to end after SIGTERM before it gets SIGKILL; zero means
	// 30 seconds. When Abort is closed every worker gets SIGKILL at once, with what it has started,
	// and Run ends; nil is never closed.
	Grace time.Duration
	Abort <-chan struct{}
	// GoesOn is asked when a worker has failed, before anything else is done about it: where it
	// says so the job goes on, and the failure is only told of in the Result. nil means that the
	// first failure ends the job. It must not wait.
	GoesOn func(Exit) bool
	// Probe may ask how this Run is; it has one Run. nil is nobody.
	Probe *Probe
	proof string // of the token, where it was given
	// lookup finds the addresses of a host; nil is the system's way. Tests replace it.
	lookup func(c context.Context, host string) ([]string, error)
	// patience is that of warnOfDeaf; 0 means what it means there.
	patience time.Duration
	// refuses stands in tests for a system that has run out of something: it is asked before a
	// worker's files are opened ("log") and before its process is started ("start").
	refuses func(step string, rank int) error
	// entered is told in tests of each stage in which the agent is.
	entered func(stage)
	// Env is the environment that the workers inherit, as "KEY=value"; nil means this process's
	// own.
	Env []string
}

// alone says that the job has one node, which needs nobody to meet.
func (s Spec) alone() bool {
	return max(s.MinNodes, s.MaxNodes) <= 1 && s.Endpoint == "" && s.Meet == nil
}

// rendezvous is what the nodes of the job must agree on.
func (s Spec) rendezvous() rdzv.Config {
	return rdzv.Config{Min: s.MinNodes, Max: s.MaxNodes, JoinTimeout: s.JoinTimeout, LastCall: s.LastCall, Silence: s.Silence,
		MaxRestarts: s.MaxRestarts, Policy: s.Policy, Proof: s.proof}
}

// populate returns a copy with every default filled in but RunID, Token and the port, which are
// made, not known.
func (s Spec) populate() Spec {
	s.MinNodes = max(s.MinNodes, 1)
	s.MaxNodes = cmp.Or(s.MaxNodes, s.MinNodes)
	if s.Role == "" {
		s.Role = "default"
	}
	if s.alone() {
		s.MasterAddr = cmp.Or(s.MasterAddr, "127.0.0.1")
	}
	if s.Stdout == nil {
		s.Stdout = io.Discard
	}
	if s.Stderr == nil {
		s.Stderr = io.Discard
	}
	s.Prefix = cmp.Or(s.Prefix, "[${rank}] ")
	if s.NoPrefix {
		s.Prefix = ""
	}
	if s.Grace == 0 {
		s.Grace = defaultGrace
	}
	if s.Env == nil {
		s.Env = os.Environ()
	}
	return s
}

// validate reports all that is wrong with a populated spec whose token is given, in one error that
// matches ErrInvalidSpec. What was wrong before is one more.
func (s Spec) validate(before error) error {
	errs := []error{before}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if _, err := lookup(s.Program); err != nil {
		errs = append(errs, err)
	}
	if s.NprocPerNode < 1 || s.NprocPerNode > maxWorkers {
		bad("processes per node: expected 1 to %d, got %d", maxWorkers, s.NprocPerNode)
	}
	if _, err := s.rendezvous().Populate(); err != nil {
		errs = append(errs, err)
	}
	if s.MaxNodes > 1 && s.Endpoint == "" && s.Meet == nil {
		bad("nodes: several of them need an endpoint, the host:port of a store in which they meet, got none")
	}
	if host, port, err := net.SplitHostPort(s.Endpoint); s.Endpoint != "" && s.Meet == nil && (err != nil || host == "" || port == "" || port == "0") {
		bad("endpoint: expected host:port, got %q", s.Endpoint)
	}
	if s.WantRank < 0 || s.WantRank > max(s.MaxNodes, 1) {
		bad("node rank: expected 0 to %d, got %d", max(s.MaxNodes, 1)-1, s.WantRank-1)
	}
	if s.MasterPort < 0 || s.MasterPort > 65535 {
		bad("master port: expected 0 (any free one) to 65535, got %d", s.MasterPort)
	}
	if strings.ContainsAny(s.MasterAddr, "/ ") || strings.Contains(s.MasterAddr, ":") && net.ParseIP(s.MasterAddr) == nil {
		bad("master address: expected a host name or an IP address without a port, got %q", s.MasterAddr)
	}
	if err := s.Logs.validate(s.NprocPerNode); err != nil {
		errs = append(errs, err)
	}
	if s.Grace < 0 {
		bad("grace: expected a positive duration, got %v", s.Grace)
	}
	for name, v := range map[string]string{"run id": s.RunID, "role": s.Role, "token": s.Token} {
		if strings.ContainsRune(v, 0) {
			bad("%s: it holds a zero byte, which an environment variable cannot", name)
		}
	}
	if s.Token != "" {
		errs = append(errs, secret.Check(s.Token))
	}
	if len(s.Role) > 64 || strings.ContainsFunc(s.Role, func(r rune) bool { return r <= ' ' || r > '~' }) {
		bad("role: expected at most 64 printable bytes of ASCII without spaces, got %q", s.Role[:min(len(s.Role), 80)])
	}
	for i, kv := range s.Env {
		if !strings.Contains(kv, "=") {
			bad("environment entry %d: expected KEY=value", i)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidSpec, err)
	}
	return nil
}

// lookup finds the program, and says what to do where it is not there.
func lookup(program string) (string, error) {
	if program == "" {
		return "", errors.New("program: expected the program that each worker runs, got none")
	}
	path, err := exec.LookPath(program)
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, exec.ErrDot):
		return "", fmt.Errorf("program %q lies in the current folder; to run it say %q", program, "./"+program)
	case errors.Is(err, exec.ErrNotFound):
		if _, statErr := os.Stat(program); statErr == nil && !isFolder(program) {
			return "", fmt.Errorf("program %q is not in PATH, but in the current folder; to run it say %q", program, "./"+program)
		}
		return "", programError{fmt.Sprintf("program %q is not in PATH; give its path, or build it first", program), fs.ErrNotExist}
	case errors.Is(err, fs.ErrNotExist):
		return "", programError{fmt.Sprintf("program %q does not exist; give its path, or build it first", program), err}
	case isFolder(program):
		return "", fmt.Errorf("program %q is a folder; name the program in it", program)
	case errors.Is(err, fs.ErrPermission):
		return "", programError{fmt.Sprintf("program %q is not executable; run chmod +x on it, or name its interpreter first", program), err}
	default:
		return "", fmt.Errorf("program %q: %w", program, err)
	}
}

// programError says in words of people why a program cannot be run, and is what the system said.
type programError struct {
	text string
	is   error
}

func (e programError) Error() string { return e.text }
func (e programError) Unwrap() error { return e.is }

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

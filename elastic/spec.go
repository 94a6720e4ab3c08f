package elastic

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/weft-project/weft/store"
)

// ErrInvalidSpec is matched by the error for a Spec that cannot be run; the error lists all that is wrong with it.
var ErrInvalidSpec = errors.New("elastic: invalid spec")

const (
	defaultGrace = 30 * time.Second
	maxWorkers   = 4096
)

// Spec says what Run is to run. Program and NprocPerNode are required; the zero value of every other field works.
type Spec struct {
	// Program is a path, or a name that is looked up in PATH. In Args, "${local_rank}" becomes the worker's local rank.
	Program string
	Args    []string
	// NprocPerNode is the number of workers to start here, 1 to 4096.
	NprocPerNode int
	// NNodes is the number of nodes, and NodeRank this node's number among them. Only one node is supported so far;
	// zero means one.
	NNodes   int
	NodeRank int
	// RunID names the job; empty means a random one. Role becomes ROLE_NAME; empty means "default".
	RunID string
	Role  string
	// MasterAddr and MasterPort are where the job's store listens; empty means 127.0.0.1, and port 0 a free one.
	MasterAddr string
	MasterPort int
	// Store says how that store is served, but for its Addr. Where it speaks TLS, Env is to tell the workers so.
	Store store.ServerConfig
	// Token is the job's shared secret; empty means WEFT_TOKEN of Env, and where that is missing too, a new one.
	Token string
	// Stdout and Stderr get the workers' output; nil means that it is dropped. They may be the same writer. If Stdout is a
	// terminal, the workers are told so by WEFT_TTY=1. Run's own messages go to Stderr.
	Stdout, Stderr io.Writer
	// NoPrefix leaves out the "[rank] " in front of each line.
	NoPrefix bool
	// Grace is how long a worker may take to end after SIGTERM before it gets SIGKILL; zero means 30 seconds.
	Grace time.Duration
	// GoesOn is asked when a worker has failed, before anything else is done about it: where it says so the job goes on, and the failure
	// is only told of in the Result. nil means that the first failure ends the job. It must not wait.
	GoesOn func(Exit) bool
	// Env is the environment that the workers inherit, as "KEY=value"; nil means this process's own.
	Env []string
}

// populate returns a copy with every default filled in but RunID, Token and the port, which are made, not known.
func (s Spec) populate() Spec {
	if s.NNodes == 0 {
		s.NNodes = 1
	}
	if s.Role == "" {
		s.Role = "default"
	}
	if s.MasterAddr == "" {
		s.MasterAddr = "127.0.0.1"
	}
	if s.Stdout == nil {
		s.Stdout = io.Discard
	}
	if s.Stderr == nil {
		s.Stderr = io.Discard
	}
	if s.Grace == 0 {
		s.Grace = defaultGrace
	}
	if s.Env == nil {
		s.Env = os.Environ()
	}
	return s
}

// validate reports all that is wrong with a populated spec, in one error that matches ErrInvalidSpec.
func (s Spec) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if _, err := lookup(s.Program); err != nil {
		errs = append(errs, err)
	}
	if s.NprocPerNode < 1 || s.NprocPerNode > maxWorkers {
		bad("processes per node: expected 1 to %d, got %d", maxWorkers, s.NprocPerNode)
	}
	if s.NNodes != 1 {
		bad("nodes: a job runs on 1 node so far, got %d", s.NNodes)
	}
	if s.NodeRank < 0 || s.NodeRank >= max(s.NNodes, 1) {
		bad("node rank: expected 0 to %d, got %d", max(s.NNodes, 1)-1, s.NodeRank)
	}
	if s.MasterPort < 0 || s.MasterPort > 65535 {
		bad("master port: expected 0 (any free one) to 65535, got %d", s.MasterPort)
	}
	if strings.ContainsAny(s.MasterAddr, "/ ") || strings.Contains(s.MasterAddr, ":") && net.ParseIP(s.MasterAddr) == nil {
		bad("master address: expected a host name or an IP address without a port, got %q", s.MasterAddr)
	}
	if s.Grace < 0 {
		bad("grace: expected a positive duration, got %v", s.Grace)
	}
	for name, v := range map[string]string{"run id": s.RunID, "role": s.Role, "token": s.Token} {
		if strings.ContainsRune(v, 0) {
			bad("%s: it holds a zero byte, which an environment variable cannot", name)
		}
	}
	for i, kv := range s.Env {
		if !strings.Contains(kv, "=") {
			bad("environment entry %d: expected KEY=value", i)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrInvalidSpec, errors.Join(errs...))
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
		return "", fmt.Errorf("program %q is not in PATH; give its path, or build it first", program)
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("program %q does not exist; give its path, or build it first", program)
	case isFolder(program):
		return "", fmt.Errorf("program %q is a folder; name the program in it", program)
	case errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("program %q is not executable; run chmod +x on it, or name its interpreter first", program)
	default:
		return "", fmt.Errorf("program %q: %w", program, err)
	}
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

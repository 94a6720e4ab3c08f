package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/rpc"
)

// maxTokenFile bounds what is read of a token file: a token is a line, not a document.
const maxTokenFile = 4 << 10

// minToken is what the workers will insist on (transport.IdentityFromToken).
const minToken = 16

// runFlags are the flags of "weft run", as they are given.
type runFlags struct {
	nproc, nnodes, runID, role, masterAddr, tokenFile, lanes, trace, storePlain string
	backend, endpoint, conf, localAddr, policy, monitorInterval                 string
	masterPort, nodeRank, maxRestarts                                           int
	noPrefix, standalone, nodeRankGiven                                         bool
	grace                                                                       time.Duration
}

// flagNames are the flags that PET_<NAME> sets where the command line does not, as with torchrun.
var flagNames = [...]string{"nproc-per-node", "nnodes", "rdzv-id", "run-id", "role", "master-addr", "master-port",
	"node-rank", "max-restarts", "standalone", "token-file", "store-plain", "lanes", "trace", "no-prefix", "grace", "rdzv-backend", "rdzv-endpoint", "rdzv-conf",
	"local-addr", "restart-policy", "monitor-interval"}

func runCommand(stdout, stderr io.Writer) *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run [flags] PROGRAM [ARGS…]",
		Short: "Start the workers of a job on this machine and watch them",
		Long: `Start the workers of a job on this machine and watch them.

Each worker finds its place in torchrun's environment variables (RANK, WORLD_SIZE, MASTER_ADDR, …). A worker that fails is
started again while --max-restarts of the whole job lasts; then the job ends, and the last line says which it was and how it ended. In ARGS,
${local_rank} becomes the worker's local rank. Flags may be spelled with - or _, and PET_<NAME> sets what the command line does not.

For a job of several machines, run the same command on each, with the --rdzv-endpoint of one of them (which hosts the
rendezvous) and the same --rdzv-id. Machines may come and go between MIN and MAX of --nnodes; who stays goes on. With --rdzv-backend etcd
they meet in an etcd cluster, which jobs share by their --rdzv-id, and the job survives the loss of any machine.`,
		Example: `  weft run --nproc-per-node 2 bin/digits --epochs 5
  weft run --nnodes 2:4 --nproc-per-node 8 --rdzv-id job7 --rdzv-endpoint node0:29400 --max-restarts 3 bin/train`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.fromEnvironment(cmd); err != nil {
				return err
			}
			f.nodeRankGiven = cmd.Flags().Changed("node-rank") || cmd.Flags().Changed("node_rank")
			spec, err := f.spec(args)
			if err != nil {
				return err
			}
			spec.Stdout, spec.Stderr = stdout, stderr
			return runJob(spec)
		},
	}
	cmd.Flags().SetInterspersed(false) // what follows PROGRAM is the program's
	f.register(cmd)
	return cmd
}

// register declares every flag under its name, and hidden under the name with underscores.
func (f *runFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	str := func(p *string, name, value, usage string) {
		flags.StringVar(p, name, value, usage)
		if alias := strings.ReplaceAll(name, "-", "_"); alias != name {
			flags.StringVar(p, alias, value, usage)
		}
	}
	num := func(p *int, name string, value int, usage string) {
		flags.IntVar(p, name, value, usage)
		flags.IntVar(p, strings.ReplaceAll(name, "-", "_"), value, usage)
	}
	str(&f.nproc, "nproc-per-node", "1", "number of workers to start, or auto for one per CPU")
	str(&f.nnodes, "nnodes", "1", "number of machines, N or MIN:MAX")
	str(&f.runID, "rdzv-id", "", "name of the job (default a random one)")
	str(&f.runID, "run-id", "", "the same as --rdzv-id")
	str(&f.role, "role", "default", "role of the workers (ROLE_NAME)")
	str(&f.masterAddr, "master-addr", "", "address the job's store listens on; beyond loopback it speaks TLS with workers of Weft (default 127.0.0.1 of one machine, else --local-addr)")
	num(&f.masterPort, "master-port", 0, "port of the job's store in the first round (default a free one)")
	num(&f.nodeRank, "node-rank", 0, "the rank that this machine asks for (default any)")
	num(&f.maxRestarts, "max-restarts", 0, "failed workers that the whole job may start again")
	str(&f.policy, "restart-policy", "worker", "what a failed worker costs: worker, it is replaced in its place and the others go on; or group, all start again, as with torchrun")
	str(&f.backend, "rdzv-backend", "store", "where machines meet: store (also called c10d), etcd (or etcd-v2), or static for --node-rank with --master-addr and --master-port")
	str(&f.endpoint, "rdzv-endpoint", "", "host[:port] at which they meet, the same on all; the machine that it names hosts it (port 29400 where none is given); for etcd [USER:PASSWORD@]HOST[:PORT],…[/PREFIX]")
	str(&f.conf, "rdzv-conf", "", "k=v,…: join_timeout, last_call_timeout and keep_alive_timeout in seconds; for etcd protocol (https), ca_cert, ssl_cert and ssl_cert_key, too")
	str(&f.localAddr, "local-addr", "", "address by which the other machines reach this one (default the one towards --rdzv-endpoint)")
	str(&f.monitorInterval, "monitor-interval", "", "accepted for torchrun's sake: exits are seen when they happen")
	flags.BoolVar(&f.standalone, "standalone", false, "a job of this machine alone, as it is without --rdzv-endpoint")
	str(&f.tokenFile, "token-file", "", "file with the job's shared secret (default $"+elastic.TokenVariable+", else a new one)")
	str(&f.storePlain, "store-plain", "auto", "who may speak plain text with the job's store: auto this machine alone, never nobody, always everybody, for workers of PyTorch on other machines")
	str(&f.lanes, "lanes", "", "ways for bytes between workers, of local, bulk and quic, separated by commas (default $"+rpc.LanesVariable+", else all)")
	str(&f.trace, "trace", "", "folder in which every worker writes the spans of its calls, for weft trace merge (default $"+rpc.TraceVariable+")")
	flags.BoolVar(&f.noPrefix, "no-prefix", false, "do not put the rank in front of each line")
	flags.BoolVar(&f.noPrefix, "no_prefix", false, "")
	flags.DurationVar(&f.grace, "grace", 30*time.Second, "time from SIGTERM to SIGKILL when the job is stopped")
	for _, name := range flagNames {
		if alias := strings.ReplaceAll(name, "-", "_"); alias != name {
			_ = flags.MarkHidden(alias) // it was declared above
		}
	}
}

// fromEnvironment sets what the command line leaves open.
func (f *runFlags) fromEnvironment(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	for _, name := range flagNames {
		alias := strings.ReplaceAll(name, "-", "_")
		variable := "PET_" + strings.ToUpper(alias)
		value, set := os.LookupEnv(variable)
		id := strings.HasSuffix(name, "-id") && (changed("rdzv-id") || changed("rdzv_id") || changed("run-id") || changed("run_id"))
		if !set || changed(name) || changed(alias) || id {
			continue
		}
		if err := cmd.Flags().Set(name, value); err != nil {
			return fmt.Errorf("%s: %w", variable, err)
		}
	}
	return nil
}

// spec turns the flags into the agent's terms; what the agent itself checks is left to it.
func (f *runFlags) spec(args []string) (elastic.Spec, error) {
	if len(args) == 0 {
		return elastic.Spec{}, errors.New("expected the program that each worker runs, as in: weft run --nproc-per-node 2 bin/digits")
	}
	nproc, errProc := parseNproc(f.nproc)
	least, most, errNodes := parseNnodes(f.nnodes)
	meet, errMeet := f.meeting(most)
	var errGrace error
	if f.grace <= 0 {
		errGrace = fmt.Errorf("--grace: expected more than 0, got %v", f.grace)
	}
	token, errToken := readToken(f.tokenFile)
	if n := len(strings.TrimSpace(os.Getenv(elastic.TokenVariable))); f.tokenFile == "" && n > 0 && n < minToken {
		errToken = fmt.Errorf("$%s has %d bytes; at least %d are needed (64 random hex digits are good)", elastic.TokenVariable, n, minToken)
	}
	env, errEnv := f.environ()
	served, tlsVariable, errStore := f.store(&token, most)
	if tlsVariable != "" {
		env = append(env, tlsVariable)
	}
	return elastic.Spec{
		Program: args[0], Args: args[1:],
		NprocPerNode: nproc, MinNodes: least, MaxNodes: most, WantRank: meet.wantRank, Endpoint: meet.endpoint, Meet: meet.etcd.opener(), LocalAddr: f.localAddr,
		MaxRestarts: f.maxRestarts, Policy: meet.policy,
		JoinTimeout: meet.joinTimeout, LastCall: meet.lastCall, Silence: meet.silence,
		RunID: f.runID, Role: f.role, Token: token,
		MasterAddr: f.masterAddr, MasterPort: f.masterPort, Store: served,
		NoPrefix: f.noPrefix, Grace: f.grace, Env: env,
	}, errors.Join(errProc, errNodes, errMeet, errGrace, errToken, errEnv, errStore)
}

// environ is what the workers inherit: this process's environment, and what the flags say to the workers.
func (f *runFlags) environ() ([]string, error) {
	env := os.Environ()
	if f.lanes != "" {
		if _, err := rpc.ParseLanes(f.lanes); err != nil {
			return nil, fmt.Errorf("--lanes: %w", err)
		}
		env = append(env, rpc.LanesVariable+"="+f.lanes)
	}
	if folder := cmp.Or(f.trace, os.Getenv(rpc.TraceVariable)); folder != "" {
		dir, err := traceFolder(folder)
		if err != nil {
			return nil, fmt.Errorf("--trace: %w", err)
		}
		env = append(env, rpc.TraceVariable+"="+dir)
	}
	return env, nil
}

// traceFolder makes a folder for traces. One that holds a trace is refused: it would be taken for one of this job.
func traceFolder(name string) (string, error) {
	dir, err := filepath.Abs(name)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return "", err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, f := range files {
		if filepath.Ext(f.Name()) == ".json" {
			return "", fmt.Errorf("%s holds %s of another job; remove it, or name another folder", dir, f.Name())
		}
	}
	return dir, nil
}

func parseNproc(s string) (int, error) {
	switch s {
	case "auto", "cpu":
		return runtime.NumCPU(), nil
	case "gpu":
		return 0, errors.New(`--nproc-per-node gpu: weft does not count GPUs yet; say how many workers`)
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("--nproc-per-node: expected a number from 1 up, or auto; got %q", s)
	}
	return n, nil
}

func parseNnodes(s string) (least, most int, err error) {
	low, high, ranged := strings.Cut(s, ":")
	if !ranged {
		high = low
	}
	least, errLeast := strconv.Atoi(low)
	most, errMost := strconv.Atoi(high)
	if errLeast != nil || errMost != nil || least < 1 || most < least {
		return 0, 0, fmt.Errorf(`--nnodes: expected N or MIN:MAX with 1 ≤ MIN ≤ MAX; got %q`, s)
	}
	return least, most, nil
}

// readToken reads the secret; no file means no token, which leaves the choice to the agent.
func readToken(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxTokenFile+1))
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || len(b) > maxTokenFile || strings.ContainsAny(token, "\n\x00") {
		return "", fmt.Errorf("--token-file %s: expected one line of at most %d bytes with the job's secret", path, maxTokenFile)
	}
	if len(token) < minToken {
		return "", fmt.Errorf("--token-file %s: the secret has %d bytes; at least %d are needed (64 random hex digits are good)", path, len(token), minToken)
	}
	return token, nil
}

// runJob runs the job to its end and turns its error into an exit code.
func runJob(spec elastic.Spec) error {
	c, stop := signalContext(context.Background())
	defer stop()
	_, err := elastic.Run(c, spec)
	var worker *elastic.WorkerError
	var sig signalError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &worker):
		if path := os.Getenv(elastic.ErrorFileVariable); path != "" { // of a launcher of this one
			if err := worker.CopyTo(path); err != nil {
				return &exitError{worker.Code, fmt.Errorf("the job failed\n%w\n%s", err, worker.Report())}
			}
		}
		return &exitError{worker.Code, errors.New("the job failed\n" + worker.Report())}
	case errors.As(err, &sig):
		return &exitError{128 + int(sig), err}
	case errors.Is(err, elastic.ErrInvalidSpec):
		return err
	}
	return &exitError{codeFailed, err}
}

// signalError says which signal ended the job.
type signalError syscall.Signal

func (s signalError) Error() string {
	return fmt.Sprintf("ended by signal %d (%v)", int(s), syscall.Signal(s))
}

// signalContext is cancelled by the first signal to end. The second one then ends weft at once, and its workers with it.
func signalContext(parent context.Context) (context.Context, func()) {
	c, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case s := <-signals:
			signal.Stop(signals)
			if sig, ok := s.(syscall.Signal); ok {
				cancel(signalError(sig))
			}
		case <-c.Done():
		}
	}()
	return c, func() {
		signal.Stop(signals)
		cancel(context.Canceled)
		<-done
	}
}

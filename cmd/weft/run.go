package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/private"
	"github.com/weft-project/weft/internal/secret"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

func runCommand(h host, stdout, stderr io.Writer) *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run [flags] PROGRAM [ARGS…]",
		Short: "Start the workers of a job on this machine and watch them",
		Long: `Start the workers of a job on this machine and watch them.

Each worker finds its place in torchrun's environment variables (RANK, WORLD_SIZE, MASTER_ADDR, …). A worker that fails is
started again while --max-restarts of the whole job lasts; then the job ends, and the report says which of the last start failed first, how it ended, and what it
said last, on stderr and in the file that $TORCHELASTIC_ERROR_FILE names. In ARGS, ${local_rank} becomes the worker's local rank. Flags may be
spelled with - or _, and PET_<NAME> sets what the command line does not. A PROGRAM whose name ends in .py is run by $PYTHON_EXEC or python3.

The worker of local rank 0 reads what weft run's stdin is, as from a pipe or a file, and goes on reading where it is started again; all others read
nothing. What is typed at a terminal it gets with --stdin, line by line: so a debugger works there (breakpoint() of Python, dlv).

For a job of several machines, run the same command on each, with the --rdzv-endpoint of one of them (which hosts the
rendezvous) and the same --rdzv-id. Machines may come and go between MIN and MAX of --nnodes; each time the workers start again on all machines, but for
those that call elastic.Join: these go on. That costs none of --max-restarts. With --nnodes N nobody comes in unless a machine has gone. Where the
workers' ranks are given, --node-rank, --master-addr and --master-port do without --rdzv-endpoint, as with torchrun. With --rdzv-backend etcd
they meet in an etcd cluster, which jobs share by their --rdzv-id, and the job survives the loss of any machine. Under Slurm, srun --ntasks-per-node=1
weft run --from-slurm … does it.

SIGTERM (or SIGINT, SIGHUP) has this machine leave: its workers get SIGTERM, and after --grace SIGKILL, with all that they have started; a second one kills them at
once. The other machines go on, but not where this one hosts the rendezvous. What kills weft itself (SIGKILL) takes the workers with it on Linux, but not what they have started.
On Linux weft reaps what it inherits, and what the workers have started ends with the job, in whatever session it is.
When nobody reads its output any more, weft ends as after a signal, with code 141; where --log-dir keeps all that would be shown, the job goes on.
A program that is not there or not executable is an error of the command line, code 2. A worker that cannot be started later is a failure like any
other, with code 127 where its program or interpreter is not there and else 126.
A pod of Kubernetes needs no preStop hook where weft run is its first process, but a terminationGracePeriodSeconds longer than --grace.
--health-addr serves its probes.`,
		Example: `  weft run --nproc-per-node 2 bin/digits --epochs 5
  weft run -m --nproc-per-node gpu --log-dir logs --redirects 3 --tee 0:3 trainer
  weft run --nnodes 2:4 --nproc-per-node 8 --rdzv-id job7 --rdzv-endpoint node0:29400 --max-restarts 3 bin/train`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(f.fromEnvironment(cmd), f.fromSlurm(cmd, os.LookupEnv), f.foreigners(stderr)); err != nil {
				return f.blame(err)
			}
			spec, err := f.spec(args)
			if err != nil {
				return f.blame(err)
			}
			for _, note := range f.notes {
				fmt.Fprintln(stderr, "weft: "+note)
			}
			spec.Stdout, spec.Stderr, spec.Adopts = stdout, stderr, h.prepare()
			if spec.Stdin, err = typed(os.Stdin, f.stdin); err != nil {
				return &exitError{codeFailed, err}
			}
			if f.healthAddr != "" {
				spec.Probe = agent.NewProbe()
				web, err := serveHealth(f.healthAddr, spec.Probe)
				if err != nil {
					return serveError(f.blame(err))
				}
				defer web.close()
				fmt.Fprintf(stderr, "weft: health at http://%s/healthz, /readyz and /metrics\n", web.addr())
			}
			return f.blame(runJob(spec))
		},
	}
	f.register(cmd)
	return cmd
}

// spec turns the flags into the agent's terms; what the agent itself checks is left to it.
func (f *runFlags) spec(args []string) (agent.Spec, error) {
	program, rest, errProgram := f.program(args)
	if f.policy == "" {
		f.policy = usualPolicy(program)
	}
	nproc, errProc := parseNproc(f.nproc, os.DirFS("/"))
	logs, errLogs := f.logs()
	least, most, errNodes := parseNnodes(f.nnodes)
	var errRange error
	if least != most && f.meetsBy(most) == "static" {
		errRange = fmt.Errorf("--nnodes %s: machines that meet at --master-addr, each with its --node-rank, are a fixed number of them: give --nnodes N; "+
			"for a range give --rdzv-endpoint HOST:PORT, with --rdzv-backend store", f.nnodes)
	}
	meet, errMeet := f.meeting(most)
	var errGrace error
	if f.shutdown < 0 {
		errGrace = fmt.Errorf("--shutdown-timeout: expected more than 0, got %v", f.shutdown)
	} else if f.shutdown > 0 {
		f.grace = time.Duration(f.shutdown * float64(time.Second))
	}
	var errRestarts error
	if f.maxRestarts < 0 {
		errRestarts = fmt.Errorf("--max-restarts: expected 0 or more, got %d", f.maxRestarts)
	}
	if f.grace <= 0 {
		errGrace = fmt.Errorf("--grace: expected more than 0, got %v", f.grace)
	}
	token, errToken := f.fileToken()
	env, errEnv := f.environ()
	spec := agent.Spec{
		Program: program, Args: rest,
		NprocPerNode: nproc, MinNodes: least, MaxNodes: most, WantRank: meet.wantRank, Endpoint: meet.endpoint, Meet: meet.etcd.opener(), Stays: meet.etcd.stays(), LocalAddr: f.localAddr,
		MaxRestarts: f.maxRestarts, Policy: meet.policy,
		JoinTimeout: meet.joinTimeout, LastCall: meet.lastCall, Silence: meet.silence,
		RunID: f.runID, Role: f.role, Token: token,
		MasterAddr: f.masterAddr, MasterPort: f.masterPort,
		Logs: logs, Prefix: os.Getenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"), NoPrefix: f.noPrefix, Grace: f.grace, Env: env,
	}
	var errStore error
	if errToken == nil {
		spec, errStore = f.secure(spec)
	}
	return spec, errors.Join(errProgram, errProc, errLogs, errNodes, errMeet, errRange, errGrace, errRestarts, errToken, errEnv, errStore)
}

// secure gives the job its id and its token, and its stores TLS.
func (f *runFlags) secure(spec agent.Spec) (agent.Spec, error) {
	files, err := f.certificates()
	if err != nil {
		return spec, err
	}
	spec.Env = f.shows(files, spec.Env)
	if spec.RunID == "" && files.CA != "" {
		spec.RunID = agent.NoRunID // certificates cannot name a random one
	}
	if spec, err = spec.MakeSecrets(); err != nil {
		return spec, err
	}
	if spec.Token == "" && spec.MaxNodes == 1 && files.CA == "" { // nobody else is to come
		spec.Token, spec.TokenMade = transport.NewToken(), true
	}
	var id *transport.Identity
	spec.Store, id, err = f.store(spec.Token, spec.RunID)
	if err == nil && files.CA != "" {
		err = checkNames(id, files.Cert, spec)
	}
	secure := rpc.StoreTLSVariable + "=0"
	if spec.Store.TLS != nil {
		secure = rpc.StoreTLSVariable + "=1"
	}
	spec.Env = append(spec.Env, secure)
	return spec, err
}

// shows is the workers' environment with what they show that they are members by: the certificates,
// or the secret that is given, and not both.
func (f *runFlags) shows(files transport.IdentityFiles, env []string) []string {
	if env == nil {
		env = os.Environ()
	}
	names := []string{rpc.CAVariable, rpc.CertVariable, rpc.KeyVariable}
	if files.CA != "" {
		names = append(names, secret.Variable, secret.FileVariable)
	}
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(names, name)
	})
	if files.CA != "" {
		env = append(env, rpc.CAVariable+"="+files.CA, rpc.CertVariable+"="+files.Cert,
			rpc.KeyVariable+"="+files.Key)
	}
	return env
}

// environ is what the workers inherit: this process's environment, and what the flags say to the
// workers.
func (f *runFlags) environ() ([]string, error) {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, etcdPasswordVariable+"=") })
	if f.lanes == "" {
		f.lanes = os.Getenv(rpc.LanesVariable)
		f.from("lanes", rpc.LanesVariable)
	}
	if f.lanes != "" {
		if _, err := rpc.ParseLanes(f.lanes); err != nil {
			return nil, fmt.Errorf("--lanes: %w", err)
		}
		env = append(env, rpc.LanesVariable+"="+f.lanes)
	}
	if f.trace == "" {
		f.trace = os.Getenv(rpc.TraceVariable)
		f.from("trace", rpc.TraceVariable)
	}
	if f.trace != "" {
		dir, err := traceFolder(f.trace)
		if err != nil {
			return nil, fmt.Errorf("--trace: %w", err)
		}
		env = append(env, rpc.TraceVariable+"="+dir)
	}
	return env, nil
}

// traceFolder makes a folder for traces. One that holds a trace is refused: it would be taken for
// one of this job.
func traceFolder(name string) (string, error) {
	dir, err := private.Folder(name)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	files, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return "", err
	}
	for _, f := range files {
		if filepath.Ext(f.Name()) == ".json" {
			return "", fmt.Errorf("%s holds %s of another job; remove it, or name another folder", dir.Name(), f.Name())
		}
	}
	return dir.Name(), nil
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

// runJob runs the job to its end and turns its error into an exit code.
func runJob(spec agent.Spec) error {
	abort := make(chan struct{})
	c, stop := signalsContext(context.Background(), func() { close(abort) })
	defer stop()
	spec.Abort = abort
	result, err := agent.Run(c, spec)
	var worker *agent.WorkerError
	var sig signalError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &worker):
		report := worker.Report()
		last := strings.LastIndexByte(report, '\n') + 1
		ended := "\n" + report[:last] + "weft: " + report[last:]
		if last == 0 {
			ended = ": " + report
		}
		if errors.Is(result.Lost, agent.ErrOutput) {
			ended += "\nweft: " + strings.TrimPrefix(result.Lost.Error(), "elastic: ")
		}
		if path := os.Getenv(elastic.ErrorFileVariable); path != "" { // of a launcher of this one
			if err := worker.CopyTo(path); err != nil {
				return &exitError{worker.Code, fmt.Errorf("the job failed\n%w%s", err, ended)}
			}
		}
		return &exitError{worker.Code, errors.New("the job failed" + ended)}
	case errors.As(err, &sig):
		return &exitError{128 + int(sig), err}
	case errors.Is(err, agent.ErrOutput):
		return &exitError{codeFailed, fmt.Errorf("the workers ended well, but %s", strings.TrimPrefix(err.Error(), "elastic: "))}
	case errors.Is(err, agent.ErrNoReader):
		return &exitError{codeUnread, err}
	case errors.Is(err, agent.ErrInvalidSpec):
		return errors.New(strings.TrimPrefix(err.Error(), agent.ErrInvalidSpec.Error()+": "))
	case errors.Is(err, rdzv.ErrClosed) && !errors.Is(err, agent.ErrEarlier):
		return &exitError{codeFailed, fmt.Errorf("the job failed: %s", strings.TrimPrefix(err.Error(), rdzv.ErrClosed.Error()+": "))}
	}
	return &exitError{codeFailed, err}
}

// signalError says which signal ended the job.
type signalError syscall.Signal

func (s signalError) Error() string {
	return fmt.Sprintf("ended by signal %d (%v)", int(s), syscall.Signal(s))
}

// signalContext is cancelled by the first signal to end. The second one then ends weft at once.
func signalContext(parent context.Context) (context.Context, func()) {
	return signalsContext(parent, nil)
}

// signalsContext is signalContext where the second signal is again's, and the third one ends weft
// at once; nil is nobody.
func signalsContext(parent context.Context, again func()) (context.Context, func()) {
	c, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case s := <-signals:
			if again == nil {
				signal.Stop(signals)
			}
			if sig, ok := s.(syscall.Signal); ok {
				cancel(signalError(sig))
			}
		case <-stopped:
			return
		}
		if again == nil {
			return
		}
		select {
		case <-signals:
			signal.Stop(signals)
			again()
		case <-stopped:
		}
	}()
	return c, func() {
		signal.Stop(signals)
		close(stopped)
		cancel(context.Canceled)
		<-done
	}
}

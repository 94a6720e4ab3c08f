package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/cmd/weft/internal/job"
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/elastic/rdzv"
)

// Command is "weft run" of a process that is h to the job.
func Command(h Host, stdout, stderr io.Writer) *cobra.Command {
	f := &job.Flags{}
	cmd := &cobra.Command{
		Use:   "run [flags] PROGRAM [ARGS…]",
		Short: "Start the workers of a job on this machine and watch them",
		Long: `Start the workers of a job on this machine and watch them.

Each worker finds its place in torchrun's environment variables (RANK, WORLD_SIZE, MASTER_ADDR, …).
In ARGS, ${local_rank} becomes the worker's local rank. PET_<NAME> sets a flag that the command line
does not. Flags may be spelled with - or _. A PROGRAM whose name ends in .py is run by $PYTHON_EXEC
or python3.

Failures. A worker that fails is started again, up to --max-restarts times in the whole job. Then
the job ends. The report says which worker of the last start failed first, how it ended, and what
it said last. It goes to stderr, and to the file that $TORCHELASTIC_ERROR_FILE names. A program that
is not there or cannot be executed is an error of the command line, code 2. A worker that cannot be
started later is a failure like any other: code 127 if its program or interpreter is not there,
else 126.

Input. The worker of local rank 0 reads the stdin of weft run, as from a pipe or a file. It goes on
reading after a restart. All others read nothing. With --stdin it also gets what is typed at a
terminal, line by line, so that a debugger works (breakpoint() of Python, dlv).

Several machines. Run the same command on each, with the same --rdzv-id, and with the
--rdzv-endpoint of one of them, which hosts the rendezvous. Machines may come and go between MIN and
MAX of --nnodes. Each time the workers start again on all machines, but those that call
elastic.Join go on. That costs none of --max-restarts. With --nnodes N a machine comes in only after
one has gone. If the ranks are given, --node-rank, --master-addr and --master-port replace
--rdzv-endpoint, as with torchrun. With --rdzv-backend etcd the machines meet in an etcd cluster,
which jobs share by their --rdzv-id; such a job survives the loss of any machine. Under Slurm, run
srun --ntasks-per-node=1 weft run --from-slurm …

Signals. SIGTERM, SIGINT or SIGHUP has this machine leave the job. Its workers get SIGTERM, and
SIGKILL after --grace, with all that they have started. A second signal kills them at once. The
other machines go on, unless this one hosts the rendezvous. What kills weft itself (SIGKILL) kills
the workers with it on Linux, but not what they have started. On Linux, weft reaps the processes
that it inherits, and what the workers have started ends with the job, in any session. When nobody
reads its output any more, weft ends as after a signal, with code 141. The job goes on if --log-dir
keeps all that would be shown.

In a pod of Kubernetes, make weft run the first process, and terminationGracePeriodSeconds longer
than --grace. No preStop hook is needed. --health-addr serves the probes.`,
		Example: `  weft run --nproc-per-node 2 bin/digits --epochs 5
  weft run -m --nproc-per-node gpu --log-dir logs --redirects 3 --tee 0:3 trainer
  weft run --nnodes 2:4 --nproc-per-node 8 --rdzv-id job7 --rdzv-endpoint node0:29400 bin/train`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(f.FromEnvironment(cmd), f.FromSlurm(cmd, os.LookupEnv), f.Foreigners(stderr)); err != nil {
				return f.Blame(err)
			}
			spec, err := f.Spec(args)
			if err != nil {
				return f.Blame(err)
			}
			for _, note := range f.Notes {
				fmt.Fprintln(stderr, "weft: "+note)
			}
			spec.Stdout, spec.Stderr, spec.Adopts = stdout, stderr, h.prepare()
			if spec.Stdin, err = typed(os.Stdin, f.Stdin); err != nil {
				return cli.Exit(cli.CodeFailed, err)
			}
			if f.HealthAddr != "" {
				spec.Probe = agent.NewProbe()
				web, err := serveHealth(f.HealthAddr, spec.Probe)
				if err != nil {
					return cli.ListenError(f.Blame(err))
				}
				defer web.Close()
				fmt.Fprintf(stderr, "weft: health at http://%s/healthz, /readyz and /metrics\n", web.Addr())
			}
			return f.Blame(runJob(spec, f))
		},
	}
	f.Register(cmd)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return f.Unknown(cli.Plainly(err)) })
	return cmd
}

// runJob runs the job to its end and turns its error into an exit code.
func runJob(spec agent.Spec, f *job.Flags) error {
	abort := make(chan struct{})
	c, stop := cli.UntilSignals(context.Background(), func() { close(abort) })
	defer stop()
	spec.Abort = abort
	result, err := agent.Run(c, spec)
	var worker *agent.WorkerError
	var sig cli.Signal
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
			ended += "\nweft: " + result.Lost.Error()
		}
		if hint := f.Misplaced(spec.Args, worker.Stderr); hint != "" && worker.Code == cli.CodeUsage { // the program's, too
			ended += "\nweft: " + hint
		}
		if path := os.Getenv(elastic.ErrorFileVariable); path != "" { // of a launcher of this one
			if err := worker.CopyTo(path); err != nil {
				return cli.Exit(worker.Code, fmt.Errorf("the job failed\n%w%s", err, ended))
			}
		}
		return cli.Exit(worker.Code, errors.New("the job failed"+ended))
	case errors.As(err, &sig):
		return cli.Exit(128+int(sig), err)
	case errors.Is(err, agent.ErrOutput):
		return cli.Exit(cli.CodeFailed, fmt.Errorf("the workers ended well, but %w", err))
	case errors.Is(err, agent.ErrNoReader):
		return cli.Exit(CodeUnread, err)
	case errors.Is(err, agent.ErrInvalidSpec):
		return errors.New(strings.TrimPrefix(err.Error(), agent.ErrInvalidSpec.Error()+": "))
	case errors.Is(err, rdzv.ErrClosed) && !errors.Is(err, agent.ErrEarlier):
		return cli.Exit(cli.CodeFailed, fmt.Errorf("the job failed: %s", strings.TrimPrefix(err.Error(), rdzv.ErrClosed.Error()+": ")))
	}
	return cli.Exit(cli.CodeFailed, err)
}

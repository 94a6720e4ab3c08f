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
			return f.Blame(runJob(spec))
		},
	}
	f.Register(cmd)
	return cmd
}

// runJob runs the job to its end and turns its error into an exit code.
func runJob(spec agent.Spec) error {
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
			ended += "\nweft: " + strings.TrimPrefix(result.Lost.Error(), "elastic: ")
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
		return cli.Exit(cli.CodeFailed, fmt.Errorf("the workers ended well, but %s", strings.TrimPrefix(err.Error(), "elastic: ")))
	case errors.Is(err, agent.ErrNoReader):
		return cli.Exit(CodeUnread, err)
	case errors.Is(err, agent.ErrInvalidSpec):
		return errors.New(strings.TrimPrefix(err.Error(), agent.ErrInvalidSpec.Error()+": "))
	case errors.Is(err, rdzv.ErrClosed) && !errors.Is(err, agent.ErrEarlier):
		return cli.Exit(cli.CodeFailed, fmt.Errorf("the job failed: %s", strings.TrimPrefix(err.Error(), rdzv.ErrClosed.Error()+": ")))
	}
	return cli.Exit(cli.CodeFailed, err)
}

package job

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/cmd/weft/internal/etcdlogin"
	"github.com/weft-project/weft/cmd/weft/internal/secrets"
	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// Flags are the flags of "weft run", as they are given.
type Flags struct {
	secrets.Flags
	nproc, nnodes, runID, role, masterAddr, lanes, trace, storePlain             string
	backend, endpoint, conf, localAddr, policy                                   string
	logDir, redirects, tee, filter, HealthAddr                                   string
	masterPort, nodeRank, maxRestarts                                            int
	noPrefix, standalone, Stdin, NodeRankGiven, module, noPython, runPath, slurm bool
	grace                                                                        time.Duration
	shutdown                                                                     float64
	foreign                                                                      [len(foreignFlags)]string
	Names                                                                        []string          // of all flags
	Notes                                                                        []string          // for people, a line each
	origins                                                                      map[string]string // of a flag whose value is not from the command line: the variable
}

// foreignFlags are torchrun's that mean nothing here. Those that change nothing for the workers are
// taken, with a line that says so.
var foreignFlags = [...]struct {
	name, why string
	refused   bool
}{
	{"start-method", "every worker is a program that is started anew", false},
	{"monitor-interval", "the end of a worker is seen when it happens", false},
	{"event-log-handler", "what happens is told on stderr, and counted at --health-addr", false},
	{"numa-binding", "the kernel places the workers; to bind them, start them under numactl", false},
	{"logs-specs", "--log-dir, --redirects and --tee say what is kept", true},
	{"signals-to-handle", "SIGINT, SIGTERM and SIGHUP end a job in good order; send one of them", true},
	{"virtual-local-rank", "LOCAL_RANK is the worker's number on its machine; set CUDA_VISIBLE_DEVICES in the program", true},
	{"duplicate-stdout-filters", "output is kept as it is; filter the files of --log-dir", true},
	{"duplicate-stderr-filters", "output is kept as it is; filter the files of --log-dir", true},
}

// Register declares every flag. Each may be spelled with - or _.
func (f *Flags) Register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows PROGRAM is the program's
	dashes(flags.SetNormalizeFunc)
	note := func(name string) string { f.Names = append(f.Names, name); return name }
	str := func(p *string, name, value, usage string) { flags.StringVar(p, note(name), value, usage) }
	num := func(p *int, name string, value int, usage string) { flags.IntVar(p, note(name), value, usage) }
	yes := func(p *bool, name string, value bool, usage string) { flags.BoolVar(p, note(name), value, usage) }
	str(&f.nproc, "nproc-per-node", "1", "number of workers to start; or gpu for one per GPU, cpu for one per CPU, auto for GPUs if there are any, else CPUs")
	str(&f.nnodes, "nnodes", "1", "number of machines, N or MIN:MAX")
	str(&f.runID, "rdzv-id", "", "name of the job, which is in all keys that are made of its secret (default "+agent.NoRunID+"; a random one on one machine that was given no secret)")
	str(&f.runID, "run-id", "", "the same as --rdzv-id")
	str(&f.role, "role", "default", "role of the workers (ROLE_NAME)")
	str(&f.masterAddr, "master-addr", "", "address the workers' store listens on (default 127.0.0.1 of one machine, else --local-addr)")
	num(&f.masterPort, "master-port", 0, "port of the job's store in the first round (default a free one; 29500 with --rdzv-backend static)")
	num(&f.nodeRank, "node-rank", 0, "the rank that this machine asks for (default any)")
	num(&f.maxRestarts, "max-restarts", 0, "failed workers that the whole job may start again")
	str(&f.policy, "restart-policy", "", "what a failed worker costs: worker, it is replaced in its place and the others go on; or group, all start again, as with torchrun (default group for Python, else worker). When machines come or go, all workers that do not call elastic.Join start again with either")
	str(&f.backend, "rdzv-backend", "", "where machines meet: store (also called c10d), etcd (or etcd-v2), or static: at --master-addr, each with its --node-rank (default static where those flags are given without --rdzv-endpoint, else store)")
	str(&f.endpoint, "rdzv-endpoint", "", "host[:port] at which they meet, the same on all; the machine that it names hosts it (port 29400 where none is given; its name may come later, up to join_timeout); for etcd [USER@]HOST[:PORT],…[/PREFIX]")
	str(&f.conf, "rdzv-conf", "", "k=v,…: join_timeout, last_call_timeout and keep_alive_timeout in seconds; for etcd protocol (https), ca_cert, ssl_cert, ssl_cert_key, user (default $"+etcdlogin.UserVariable+") and password_file (default $"+etcdlogin.PasswordVariable+"), too")
	str(&f.localAddr, "local-addr", "", "address by which the other machines reach this one (default the one towards --rdzv-endpoint)")
	yes(&f.standalone, "standalone", false, "a job of this machine alone, as it is without --rdzv-endpoint")
	yes(&f.slurm, "from-slurm", false, "take --nnodes, --node-rank, --rdzv-id and --rdzv-endpoint, where they are not given, from Slurm's environment; srun starts one weft run per machine")
	f.Flags.Register(str)
	flags.Lookup("token-file").Usage += "; where there is none, a job of one machine gets a new one"
	str(&f.storePlain, "store-plain", "auto", "who may speak plain text with the workers' store, as PyTorch's workers do, in a key space of their own beside the job's: auto this user's processes on this machine, never nobody, always everybody, also on other machines")
	str(&f.lanes, "lanes", "", "ways for bytes between workers, of "+strings.Join(transport.LaneNames(), ", ")+", separated by commas (default $"+rpc.LanesVariable+", else all)")
	str(&f.trace, "trace", "", "folder in which every worker writes the spans of its calls, for weft trace merge (default $"+rpc.TraceVariable+")")
	str(&f.logDir, "log-dir", "", "folder for log files and error files, DIR/ID_RANDOM/round_R/attempt_N/LOCALRANK, which only its user may write to; without --redirects and --tee all output is kept and shown")
	flags.StringVarP(&f.redirects, note("redirects"), "r", "", "output that goes to files and is not shown, without --log-dir below $XDG_STATE_HOME/weft/logs (~/.local/state/weft/logs), or in a new folder for temporary files where there is no home: 0 none, 1 stdout, 2 stderr, 3 both, or of some workers as in 0:3,1:1 (by local rank)")
	flags.StringVarP(&f.tee, note("tee"), "t", "", "output that goes to files and is shown, in the same notation, and in the same folder")
	str(&f.filter, "local-ranks-filter", "", "local ranks whose output is shown, as in 0,2 (default all)")
	yes(&f.noPrefix, "no-prefix", false, "do not put the rank in front of each line")
	yes(&f.Stdin, "stdin", false, "give local rank 0 what is typed at this terminal, for a debugger; a stdin that is no terminal it has anyway")
	flags.BoolVarP(&f.module, note("module"), "m", false, "PROGRAM is a Python module: python3 -u -m PROGRAM")
	yes(&f.noPython, "no-python", false, "run PROGRAM itself though its name ends in .py")
	yes(&f.runPath, "run-path", false, "PROGRAM is a Python script, whatever its name")
	str(&f.HealthAddr, "health-addr", "", "[host]:port at which /healthz, /readyz (workers run, and the rendezvous was heard of within keep_alive_timeout) and /metrics are served over HTTP; without a host this machine alone sees them")
	flags.DurationVar(&f.grace, note("grace"), 30*time.Second, "time from SIGTERM to SIGKILL when the job is stopped")
	flags.Float64Var(&f.shutdown, note("shutdown-timeout"), 0, "the same in seconds, as torchrun has it")
	for i, foreign := range foreignFlags {
		str(&f.foreign[i], foreign.name, "", "torchrun's; no effect here")
		if foreign.name == "virtual-local-rank" {
			flags.Lookup(foreign.name).NoOptDefVal = "true"
		}
		_ = flags.MarkHidden(foreign.name) // it was declared above
	}
}

// dashes has a flag found by its name with underscores, too. The types are those of the flags' own
// package.
func dashes[Flags any, Name ~string](normalize func(func(Flags, string) Name)) {
	normalize(func(_ Flags, name string) Name { return Name(dashed(name)) })
}

// FromEnvironment sets what the command line leaves open from PET_<NAME>, as torchrun does.
func (f *Flags) FromEnvironment(cmd *cobra.Command) error {
	var errs []error
	flags := cmd.Flags()
	id := flags.Changed("rdzv-id") || flags.Changed("run-id")
	for _, name := range f.Names {
		variable := cli.PetVariable(name)
		value, set := os.LookupEnv(variable)
		if !set || flags.Changed(name) || id && strings.HasSuffix(name, "-id") {
			continue
		}
		if err := flags.Set(name, value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", variable, cli.Plainly(err)))
		}
		f.from(name, variable)
	}
	f.NodeRankGiven = flags.Changed("node-rank")
	return errors.Join(errs...)
}

// from notes from which variable a flag's value is.
func (f *Flags) from(name, variable string) {
	if f.origins == nil {
		f.origins = map[string]string{}
	}
	f.origins[name] = "$" + variable
}

// specTerms are what agent.Spec calls what a flag says.
var specTerms = map[string]string{
	"processes per node": "nproc-per-node", "node rank": "node-rank", "master port": "master-port", "master address": "master-addr",
	"run id": "rdzv-id", "role": "role", "redirects": "redirects", "tee": "tee", "local ranks to show": "local-ranks-filter", "log folder": "log-dir",
}

// Blame has an error name the flag that is wrong, or the variable that its value is from. Each line
// of it begins with what is wrong.
func (f *Flags) Blame(err error) error {
	var exit *cli.ExitError
	if err == nil || errors.As(err, &exit) {
		return err
	}
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		if term, rest, _ := strings.Cut(line, ":"); specTerms[term] != "" {
			line = "--" + specTerms[term] + ":" + rest
		}
		name, rest := "", line
		if flag, is := strings.CutPrefix(line, "--"); is {
			name = flag[:strings.IndexAny(flag+":", ": ")]
			rest = flag[len(name):]
		} else if strings.HasPrefix(line, "program ") {
			name, rest = "program", ": "+line
		}
		if lines[i] = line; f.origins[name] != "" {
			lines[i] = f.origins[name] + rest
		}
	}
	return cli.Reword(strings.Join(lines, "\n"), err)
}

// Foreigners refuses torchrun's flags that would change what the workers see, and says of the
// others that they have no effect.
func (f *Flags) Foreigners(say io.Writer) error {
	var errs []error
	for i, flag := range foreignFlags {
		switch {
		case f.foreign[i] == "" || f.foreign[i] == "false":
		case flag.refused:
			errs = append(errs, fmt.Errorf("--%s is not there: %s", flag.name, flag.why))
		case flag.name == "start-method" && !strings.Contains(" spawn fork forkserver ", " "+f.foreign[i]+" "):
			errs = append(errs, fmt.Errorf("--start-method: expected spawn, fork or forkserver, got %q", f.foreign[i]))
		default:
			fmt.Fprintf(say, "weft: --%s has no effect: %s\n", flag.name, flag.why)
		}
	}
	return errors.Join(errs...)
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/cmd/weft/internal/run"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/rpc"
)

// TestMain makes the test binary weft itself, or a worker of it, where WEFT_TEST_PART says so.
func TestMain(m *testing.M) {
	switch os.Getenv("WEFT_TEST_PART") {
	case "weft":
		_ = os.Setenv("WEFT_TEST_PART", "worker")
		os.Exit(execute(run.Host{Whole: true}, os.Args[1:], os.Stdout, os.Stderr))
	case "worker":
		worker(os.Args[1:])
	default:
		_ = os.Setenv("WEFT_TEST_PART", "worker")
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // the race detector makes every exit take a second otherwise
		proctest.Together(4)
		proctest.Main(m, strangers)
	}
}

// countKeys asks a store in plain text how many keys it has, as PyTorch 1.13 does, and gives what
// it hears: nothing where the store hangs up.
func countKeys(c context.Context, addr string) ([]byte, error) {
	conn, err := new(net.Dialer).DialContext(c, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_, _ = conn.Write([]byte{6}) // the store may have hung up
	heard := make([]byte, 8)
	n, _ := io.ReadFull(conn, heard)
	return heard[:n], nil
}

// here runs a command line in this process, which is not weft's alone.
func here(args []string, stdout, stderr io.Writer) int {
	return execute(run.Host{}, args, stdout, stderr)
}

func worker(args []string) {
	rank := os.Getenv("RANK")
	switch args[0] {
	case "show":
		for _, name := range args[1:] {
			fmt.Printf("%s=%s\n", name, os.Getenv(name))
		}
	case "echo":
		fmt.Printf("%q\n", args[1:])
	case "fail":
		if rank == "1" {
			fmt.Fprintln(os.Stderr, "the reason")
			os.Exit(7)
		}
		wait()
	case "curse":
		_ = elastic.WriteError(errors.New(steers))
		os.Exit(3)
	case "read":
		b, _ := io.ReadAll(os.Stdin)
		fmt.Printf("read %q\n", b)
	case "ask": // a debugger's prompt
		if rank == "0" {
			fmt.Print("(Pdb) ")
		}
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		fmt.Printf("read %q\n", line)
	case "join":
		join()
	case "pair":
		pair()
	case "stay":
		stay(args[1])
	case "epochs":
		epochs()
	case "hello":
		hello()
	case "stubborn", "child": // neither ends by SIGTERM; the child, in the same group, holds a fifo
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		if args[0] == "stubborn" {
			if err := exec.Command(os.Args[0], "child", args[1]).Start(); err != nil {
				panic(err)
			}
		} else if f, err := os.OpenFile(args[1], os.O_WRONLY, 0); err == nil {
			_, _ = f.WriteString("held")
			wait()
		}
		wait()
	case "wait":
		fmt.Println("pid", os.Getpid(), "ready")
		wait()
	}
}

// epochs is a worker that joins the others of each epoch, and says so. The first of them waits for
// the others in a group, in vain.
func epochs() {
	m, err := elastic.Join(context.Background())
	if err == nil {
		err = m.Each(context.Background(), func(c context.Context, e *elastic.Epoch) error {
			w, err := rpc.Join(c, rpc.Config{Store: e.Store, Rank: e.Rank, WorldSize: e.World, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				return err
			}
			defer w.Close()
			g, err := collective.Open(c, w, "pair")
			if err != nil {
				return err
			}
			defer g.Close()
			if e.Rank == 0 {
				go func() { _ = g.Barrier(c) }()
				for len(g.Trace()) == 0 {
					runtime.Gosched()
				}
			}
			fmt.Println("epoch", e.Epoch, "pid", os.Getpid())
			<-e.Over
			return elastic.ErrOver
		})
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// hello is a worker that calls all others.
func hello() {
	c, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	greet := rpc.Define("greet", func(_ context.Context, from string) (string, error) {
		return fmt.Sprintf("hello %s from worker %s", from, os.Getenv("RANK")), nil
	})
	w, err := rpc.Join(c, rpc.Config{Functions: []rpc.Function{greet}, Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		for _, peer := range w.Workers() {
			answer, errCall := greet.Call(w.Context(c), peer.Name, os.Getenv("RANK"))
			fmt.Println(answer)
			err = errors.Join(err, errCall)
		}
		err = errors.Join(err, w.Leave(c))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// join is a worker of Weft, and meanwhile a client that speaks plain text.
func join() {
	c, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var said []byte
	w, err := rpc.Join(c, rpc.Config{Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		said, err = countKeys(c, net.JoinHostPort(os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT")))
		err = errors.Join(err, w.Leave(c))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if string(said) == "!tls" {
		fmt.Println("plain refused")
		return
	}
	fmt.Println("plain sees", binary.LittleEndian.Uint64(said), "keys")
}

// pair is a worker that says when it has met the others, and waits.
func pair() {
	g, err := collective.Init(context.Background(), collective.Config{Worker: rpc.Config{Logger: slog.New(slog.DiscardHandler)}})
	if err == nil {
		err = g.Barrier(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("pid", os.Getpid(), "ready")
	wait()
}

// stay is a worker that says each place that it gets, until there is a file of that name.
func stay(done string) {
	fmt.Println("here", os.Getpid())
	m, err := elastic.Join(context.Background())
	if err == nil {
		go func() {
			for m.Err() == nil {
				p := m.Place()
				fmt.Println("place", p.Rank, "of", p.World)
				<-p.Over
			}
		}()
	}
	for err == nil {
		if _, absent := os.Stat(done); absent == nil {
			os.Exit(0)
		}
		time.Sleep(20 * time.Millisecond)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// wait blocks until a signal ends the process.
func wait() {
	never := make(chan os.Signal, 1)
	signal.Notify(never, syscall.SIGUSR1)
	<-never
}

// weft runs a command line in this process, with workers that are this binary.
func weft(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = here(args, &out, &err)
	return code, out.String(), err.String()
}

func TestAWrongCommandLineIsExplainedAndExitsWithTwo(t *testing.T) {
	self := os.Args[0]
	t.Setenv("MASTER_ADDR", "")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"weave"}, `unknown command "weave"`},
		{[]string{"--bogus=/a/b"}, "weft: unknown flag: --bogus\n"},
		{[]string{"bin/replicas", "--steps", "3"}, `unknown command "bin/replicas" for "weft"; to start its workers: weft run bin/replicas --steps 3`},
		{[]string{"run"}, "expected the program that each worker runs"},
		{[]string{"run", "--nproc-per-node", "0", self}, `expected a number from 1 up, auto, cpu or gpu; got "0"`},
		{[]string{"run", "--nproc-per-node", "two", self}, `got "two"`},
		{[]string{"run", "-m", "--no-python", "module"}, "don't use both the '--no-python' flag and the '--module' flag"},
		{[]string{"run", "nowhere.py"}, `script "nowhere.py" does not exist; give its path`},
		{[]string{"run", "--logs-specs", "mine", self}, "--logs-specs is not there: --log-dir, --redirects and --tee say what is kept"},
		{[]string{"run", "--virtual-local-rank", self}, "--virtual-local-rank is not there: LOCAL_RANK is"},
		{[]string{"run", "--start-method", "thread", self}, `expected spawn, fork or forkserver, got "thread"`},
		{[]string{"run", "--redirects", "9", self}, `--redirects: expected 0 (none), 1 (stdout), 2 (stderr) or 3 (both), got "9"`},
		{[]string{"run", "--tee", "1:3", self}, "weft: --tee: there is no local rank 1: they are 0 to 0\n"},
		{[]string{"run", "--local-ranks-filter", "0,one", self}, `--local-ranks-filter: expected local ranks as in 0,2; got "one"`},
		{[]string{"run", "--log-dir", "/dev/null/logs", self}, "weft: --log-dir: open /dev/null: not a directory"},
		{[]string{"run", "--shutdown-timeout", "-1", self}, "--shutdown-timeout: expected more than 0, got -1"},
		{[]string{"run", "--health-addr", "8080", self}, `--health-addr: expected [host]:port, got "8080"`},
		{[]string{"run", "--from-slurm", self}, "--from-slurm: $SLURM_JOB_ID is not set; start weft run by srun, once per machine"},
		{[]string{"run", "--nproc-per-node", "9999", self}, "weft: --nproc-per-node: expected 1 to 4096, got 9999\n"},
		{[]string{"run", "--nnodes", "2:1", self}, "expected N or MIN:MAX"},
		{[]string{"run", "--nnodes", "1:4", self}, "several machines need --rdzv-endpoint"},
		{[]string{"run", "--node-rank", "1", self}, "weft: --node-rank: expected 0 to 0, got 1\n"},
		{[]string{"run", "--max-restarts", "-3", self}, "weft: --max-restarts: expected 0 or more, got -3\n"},
		{[]string{"run", "--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:abc", self}, `--rdzv-endpoint: expected HOST[:PORT] with a port from 1 to 65535, got "127.0.0.1:abc"`},
		{[]string{"run", "--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:70000", self}, "--rdzv-endpoint: expected HOST[:PORT] with a port"},
		{[]string{"run", "--nnodes", "2", "--rdzv-endpoint", "29601", self}, `--rdzv-endpoint: expected HOST[:PORT], as in 127.0.0.1:29601, got only a port: "29601"`},
		{[]string{"store", "serve", "--listen", "29601"}, `--listen: expected HOST:PORT, as in 127.0.0.1:29601, or 0.0.0.0:29601 for all addresses; got "29601"`},
		{[]string{"store", "serve", "--listen", "127.0.0.1:0", "--metrics", "9100"}, `--metrics: expected HOST:PORT, as in 127.0.0.1:9100, or 0.0.0.0:9100 for all addresses; got "9100"`},
		{[]string{"store", "serve", "--dialect", "2.16"}, `--dialect: unknown dialect "2.16", expected auto or a release of PyTorch: 1.13, 2.0, 2.1, or 2.2 to 2.15`},
		{[]string{"run", "--nnodes", "2", "--rdzv-endpoint", "node7:29400", self}, "weft token --output FILE makes a secret"},
		{[]string{"run", "--grace", "0s", self}, "expected more than 0"},
		{[]string{"run", "--master-port", "70000", self}, "weft: --master-port: expected 0 (any free one) to 65535, got 70000\n"},
		{[]string{"run", "--token-file", "/nowhere/token", self}, "--token-file"},
		{[]string{"run", "--no-such-flag", self}, "unknown flag: --no-such-flag; flags of the program stand behind its name"},
		{[]string{"run", "--nnode", "2", self}, "unknown flag: --nnode; did you mean --nnodes?"},
		{[]string{"run", "main.go"}, `program "main.go" is source text; build it first, as in: go build -o bin/ .`},
		{[]string{"run", "./no-such-program"}, "does not exist; give its path, or build it first"},
		{[]string{"store"}, "expected one of serve, get, set"},
		{[]string{"store", "get"}, "expected: weft store get KEY…; got 0 arguments"},
		{[]string{"store", "keys", "k"}, "expected: weft store keys; got 1 arguments"},
		{[]string{"store", "watch", "k", "l"}, "got 2 arguments"},
		{[]string{"store", "get", "k"}, "expected the store: --url tcp://HOST:PORT"},
		{[]string{"store", "get", "k", "--url", "127.0.0.1:1"}, "--url: "},
		{[]string{"store", "get", "k", "--url", "tcp://127.0.0.1"}, "port number missing"},
		{[]string{"store", "wait", "k", "--timeout", "-1s"}, "--timeout: expected 0s or more"},
		{[]string{"store", "set", "k", "v", "--connect-timeout", "0s"}, "--connect-timeout: expected more than 0s"},
		{[]string{"store", "add", "n", "-1"}, "what begins with - stands behind --"},
		{[]string{"doctor", "me"}, `unknown command "me"`},
		{[]string{"doctor", "--all"}, "--all is about a running job: give its store with --init"},
		{[]string{"doctor", "--init", "localhost:29500"}, "--init: expected tcp://host:port"},
		{[]string{"doctor", "--init", "tcp://localhost:29500", "--token-file", "/nowhere/token"}, "--token-file"},
		{[]string{"doctor", "--init", "tcp://localhost:29500", "--timeout", "0s"}, "--timeout: expected more than 0"},
	} {
		code, stdout, stderr := weft(t, c.args...)
		require.Equal(t, 2, code, "%v", c.args)
		require.Contains(t, stderr, c.want, "%v", c.args)
		require.Empty(t, stdout, "%v", c.args)
	}
}

func TestVersionNamesGoAndThePlatform(t *testing.T) {
	code, stdout, _ := weft(t, "version")
	require.Zero(t, code)
	require.Regexp(t, `^weft .* \(go1\.\S+, \w+/\w+\)\n$`, stdout)
}

func TestAWrongValueIsBlamedOnTheVariableThatItIsFrom(t *testing.T) {
	self := os.Args[0]
	for _, c := range []struct {
		variable, value string
		args            []string
		want            string
	}{
		{"PET_NPROC_PER_NODE", "zz", nil, `$PET_NPROC_PER_NODE: expected a number from 1 up, auto, cpu or gpu; got "zz"`},
		{"PET_NPROC_PER_NODE", "gpu", nil, "$PET_NPROC_PER_NODE gpu: this machine shows no GPU"},
		{"PET_NPROC_PER_NODE", "9999", nil, "$PET_NPROC_PER_NODE: expected 1 to 4096, got 9999"},
		{"PET_NNODES", "2:1", nil, "$PET_NNODES: expected N or MIN:MAX"},
		{"PET_NNODES", "3", nil, "$PET_NNODES 3: several machines need --rdzv-endpoint"},
		{"PET_NODE_RANK", "4", nil, "$PET_NODE_RANK: expected 0 to 0, got 4"},
		{"PET_MASTER_PORT", "high", nil, `PET_MASTER_PORT: invalid argument "high"`},
		{"PET_MASTER_PORT", "70000", nil, "$PET_MASTER_PORT: expected 0"},
		{"PET_MASTER_ADDR", "a b", nil, "$PET_MASTER_ADDR: expected a host name"},
		{"PET_MAX_RESTARTS", "-3", nil, "$PET_MAX_RESTARTS: expected 0 or more, got -3"},
		{"PET_RESTART_POLICY", "all", nil, `$PET_RESTART_POLICY: expected worker or group, got "all"`},
		{"PET_RDZV_BACKEND", "zoo", nil, `$PET_RDZV_BACKEND: expected store (or c10d), etcd or static, got "zoo"`},
		{"PET_RDZV_ENDPOINT", "h:0", []string{"--nnodes", "2"}, "$PET_RDZV_ENDPOINT: expected HOST[:PORT]"},
		{"PET_RDZV_CONF", "x=1", nil, `$PET_RDZV_CONF: unknown key "x"`},
		{"PET_REDIRECTS", "9", nil, "$PET_REDIRECTS: expected 0 (none)"},
		{"PET_TEE", "7:3", nil, "$PET_TEE: there is no local rank 7"},
		{"PET_LOCAL_RANKS_FILTER", "one", nil, "$PET_LOCAL_RANKS_FILTER: expected local ranks"},
		{"PET_LOG_DIR", "/dev/null/logs", nil, "$PET_LOG_DIR: open /dev/null"},
		{"PET_TOKEN_FILE", "/nowhere/token", nil, "$PET_TOKEN_FILE: open /nowhere/token"},
		{"PET_STORE_PLAIN", "sometimes", nil, "$PET_STORE_PLAIN: "},
		{"PET_GRACE", "0s", nil, "$PET_GRACE: expected more than 0"},
		{"PET_SHUTDOWN_TIMEOUT", "-1", nil, "$PET_SHUTDOWN_TIMEOUT: expected more than 0, got -1"},
		{"PET_LANES", "air", nil, "$PET_LANES: "},
		{"WEFT_LANES", "air", nil, `$WEFT_LANES: there is no lane "air"; there are `},
		{"PET_ROLE", "a b", nil, "$PET_ROLE: expected at most 64"},
		{"PET_HEALTH_ADDR", "8080", nil, `$PET_HEALTH_ADDR: expected [host]:port, got "8080"`},
		{"WEFT_TRACE", "/dev/null/spans", nil, "$WEFT_TRACE: open /dev/null"},
		{"PYTHON_EXEC", "nopython", []string{"-m"}, `$PYTHON_EXEC: program "nopython" is not in PATH`},
	} {
		t.Run(c.variable+"="+c.value, func(t *testing.T) {
			t.Setenv("CUDA_VISIBLE_DEVICES", "")
			t.Setenv(c.variable, c.value)
			code, stdout, stderr := weft(t, append(append([]string{"run"}, c.args...), self, "show", "RANK")...)
			require.Equal(t, cli.CodeUsage, code, stderr)
			require.Contains(t, "\n"+strings.TrimPrefix(stderr, "weft: "), "\n"+c.want)
			require.Empty(t, stdout)
		})
	}
	t.Setenv("PET_NPROC_PER_NODE", "zz")
	_, _, stderr := weft(t, "run", "--nproc-per-node", "yy", self)
	require.Contains(t, stderr, `--nproc-per-node: expected a number from 1 up, auto, cpu or gpu; got "yy"`, "the command line counts")
	t.Setenv("PET_RDZV_CONF", "x=1")
	_, _, stderr = weft(t, "status", "--rdzv-endpoint", "localhost")
	require.Contains(t, stderr, `weft: $PET_RDZV_CONF: unknown key "x"`)
	t.Setenv("MASTER_ADDR", "a host")
	t.Setenv("MASTER_PORT", "x")
	_, _, stderr = weft(t, "store", "get", "k")
	require.Contains(t, stderr, "weft: $MASTER_ADDR and $MASTER_PORT: ")
}

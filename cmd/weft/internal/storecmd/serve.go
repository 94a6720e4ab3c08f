package storecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/cmd/weft/internal/reach"
	"github.com/weft-project/weft/cmd/weft/internal/secrets"
	"github.com/weft-project/weft/cmd/weft/internal/web"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/store/journal"
)

// serveFlags are those of "weft store serve".
type serveFlags struct {
	secrets.Member
	listen, dialect, plain, memory, journal, fsync, metrics string
	tls, verbose                                            bool
	maxClients                                              int
}

func serveCommand(stdout, stderr io.Writer) *cobra.Command {
	f := &serveFlags{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a store over TCP until SIGTERM",
		Long: `Serve a store over TCP until SIGTERM or SIGINT.

The first line on standard output is the store's URL. The last line on standard error says what the
store did. Weft's clients and PyTorch's can use it.

With the job's secret or certificates the store has TLS, and only members of the job see their keys.
PyTorch's clients speak plain text. They are guests: they have keys of their own behind the same
port, with limits of their own. Guests must be processes of this host, and of root or the user who
serves the store, unless --plain says otherwise.

Without TLS all clients share the same keys. On a loopback address these are the processes of that
user on this host. Elsewhere they are whoever reaches the port.`,
		Example: "  weft store serve --listen 127.0.0.1:29500\n  weft store serve --listen 0.0.0.0:29500 --token-file job.token --metrics 127.0.0.1:9100",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.config(stderr)
			if err = errors.Join(f.CheckPlain(cmd.Flags().Changed("tls") && !f.tls), err); err != nil {
				return err
			}
			return f.serve(cmd.Context(), cfg, stdout, stderr)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:29500", "HOST:PORT to listen on; port 0 is a free one, host 0.0.0.0 all addresses")
	flags.StringVar(&f.dialect, "dialect", "auto", "PyTorch of the clients: 1.13, 2.0, 2.1 or later; auto tells 1.13 and 2.0, which speak alike, and those from 2.2 on apart")
	flags.BoolVar(&f.tls, "tls", false, "have TLS, by the job's secret or certificates; --token-file and --ca imply it")
	flags.StringVar(&f.plain, "plain", "auto", "who may speak plain text: auto this host's processes of the same user, and everybody where there is no TLS and the address is not loopback; always everybody; never nobody. Beside TLS they are guests")
	flags.StringVar(&f.memory, "max-memory", "", "most of keys and values, such as 512MiB or 4GiB, and so much again for guests (default 1GiB)")
	flags.IntVar(&f.maxClients, "max-clients", 0, "most connections at a time, of which a fourth is kept for members where there is TLS (default 65536, or three quarters of the files that may be open)")
	flags.StringVar(&f.journal, "journal", "", "FILE that keeps what is stored: a store that is started again with it knows all that anybody was told (default none)")
	flags.StringVar(&f.fsync, "fsync", "always", "when changes are brought to the disk: always before anybody hears of them; every so often, as in 100ms, or never by ourselves, which outlive a crash of the store and not of the machine")
	flags.StringVar(&f.metrics, "metrics", "", "HOST:PORT on which Prometheus finds /metrics")
	flags.BoolVar(&f.verbose, "verbose", false, "say on standard error why every client was closed that was, and not of one a minute")
	f.Register(cmd)
	return cmd
}

// config reads all flags, and tells all that is wrong with them.
func (f *serveFlags) config(stderr io.Writer) (cfg store.ServerConfig, err error) {
	cfg = store.ServerConfig{Addr: f.listen, MaxClients: f.maxClients}
	log := slog.New(&seldom{Handler: slog.NewTextHandler(stderr, nil)})
	if f.verbose {
		log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	cfg.Logger = log
	var errs [7]error
	errs[5], errs[6] = cli.CheckListen("listen", f.listen), cli.CheckListen("metrics", f.metrics)
	if cfg.Dialect, errs[0] = store.ParseDialect(f.dialect); errs[0] != nil {
		errs[0] = fmt.Errorf("--dialect: %w", errs[0])
	}
	if cfg.Plain, errs[1] = cli.ParsePlain(f.plain); errs[1] != nil {
		errs[1] = fmt.Errorf("--plain: %w", errs[1])
	}
	if f.memory != "" {
		cfg.Limits.Memory, errs[2] = parseSize(f.memory)
	}
	cfg.Journal.Path = f.journal
	if cfg.Journal.Sync, errs[4] = journal.ParsePolicy(f.fsync); errs[4] != nil {
		errs[4] = fmt.Errorf("--fsync: %w", errs[4])
	} else if f.journal == "" && f.fsync != "always" {
		errs[4] = fmt.Errorf("--fsync %s is for a --journal, which is not given", f.fsync)
	}
	if f.tls || f.Given() {
		id, err := f.Identity("--tls", "weft store", log)
		if errs[3] = err; err == nil {
			cfg.TLS = id.StoreTLS()
		}
	} else if cfg.Plain == store.PlainNever {
		errs[3] = errors.New("--plain never: a store without TLS could serve nobody; give --token-file, or --ca, --cert and --key")
	} else if host, _, _ := net.SplitHostPort(f.listen); host != "" && !reach.Loopback(host) && cfg.Plain != store.PlainAlways && errs[1] == nil {
		errs[3] = fmt.Errorf("other machines can reach %s: give --tls and the job's secret, or --plain always, which lets everybody read and write everything", f.listen)
	}
	return cfg, errors.Join(errs[:]...)
}

// parseSize reads a number of bytes, with a unit or without.
func parseSize(s string) (int, error) {
	number, factor := s, 1
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if rest, ok := strings.CutSuffix(s, unit); ok {
			number, factor = rest, 1<<(10*(i+1))
		}
	}
	n, err := strconv.Atoi(strings.TrimSpace(number))
	if err != nil || n < 1 || n > math.MaxInt/factor {
		return 0, fmt.Errorf("--max-memory: expected a number of bytes from 1 up, or of KiB, MiB, GiB or TiB as in 512MiB, got %q", s)
	}
	return n * factor, nil
}

// serve serves until a signal, and then says what it did.
func (f *serveFlags) serve(c context.Context, cfg store.ServerConfig, stdout, stderr io.Writer) (err error) {
	c, stop := cli.UntilSignal(c)
	defer stop()
	server, err := store.Serve(cfg)
	if err != nil {
		return serveError(err)
	}
	defer func() { err = cmp.Or(err, server.Close()) }() // the first thing that went wrong
	if f.metrics != "" {
		m, errMetrics := web.Serve(f.metrics, web.Metrics(newStoreCollector(server.Stats)))
		if errMetrics != nil {
			return cli.ListenError(fmt.Errorf("--metrics: %w", errMetrics))
		}
		defer m.Close()
		fmt.Fprintf(stderr, "weft: metrics at http://%s/metrics\n", m.Addr())
	}
	began := time.Now()
	fmt.Fprintf(stdout, "tcp://%s\n", server.Addr())
	select {
	case <-c.Done():
		err = ended(context.Cause(c))
	case <-server.Failed(): // nobody can be told anything any more
		err = cli.Exit(cli.CodeFailed, fmt.Errorf("the journal failed: %w", server.Err()))
	}
	now := server.Stats()
	commands := uint64(0)
	for _, n := range now.Commands {
		commands += n
	}
	fmt.Fprintf(stderr, "weft: the store at %s ended after %v: %d connections, %d commands, %d keys and %d bytes in it at the end\n",
		server.Addr(), time.Since(began).Round(time.Second), now.Accepted, commands, now.Keys, now.Bytes)
	return err
}

// serveError gives the error of a store that cannot be served its exit code, and advice.
func serveError(err error) error {
	corrupt := new(journal.CorruptError)
	switch {
	case errors.As(err, &corrupt) && corrupt.Offset == 0:
		return cli.Exit(cli.CodeFailed, fmt.Errorf("%w\nthat is no journal of a store: give another path, which need not exist", err))
	case errors.As(err, &corrupt):
		return cli.Exit(cli.CodeFailed, fmt.Errorf("%w\nwhat stands before that byte is whole: to go on with it alone, cut a copy there (truncate -s %d FILE)", err, corrupt.Offset))
	case errors.Is(err, journal.ErrLocked):
		return cli.Exit(cli.CodeFailed, err)
	}
	return cli.ListenError(err)
}

// ended is the exit code: signals by which one ends a server are no failure.
func ended(cause error) error {
	var sig cli.Signal
	if !errors.As(cause, &sig) {
		return cause
	}
	switch syscall.Signal(sig) {
	case syscall.SIGINT, syscall.SIGTERM:
		return nil
	}
	return cli.Exit(128+int(sig), cause)
}

// seldom lets a message through once a minute: clients that are refused come again and again.
type seldom struct {
	slog.Handler

	mu   sync.Mutex
	last map[string]time.Time
}

// Handle implements slog.Handler.
func (h *seldom) Handle(c context.Context, r slog.Record) error {
	h.mu.Lock()
	last, told := h.last[r.Message]
	again := told && r.Time.Sub(last) < time.Minute
	if !again {
		if h.last == nil {
			h.last = map[string]time.Time{}
		}
		h.last[r.Message] = r.Time
	}
	h.mu.Unlock()
	if again {
		return nil
	}
	return h.Handler.Handle(c, r)
}

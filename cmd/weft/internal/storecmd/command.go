package storecmd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/cmd/weft/internal/etcdlogin"
	"github.com/weft-project/weft/cmd/weft/internal/reach"
	"github.com/weft-project/weft/cmd/weft/internal/secrets"
	"github.com/weft-project/weft/internal/secret"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
)

// Command is "weft store" with all its commands.
func Command(stdout, stderr io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Serve a job's key-value store, or look into one",
		Long: `Serve a job's key-value store, or look into one.

A store is named by its URL: tcp://host:port, file:///path, or etcd://[user@]host,host/prefix with
the password in $` + etcdlogin.PasswordVariable + `. That of a running job is
tcp://$MASTER_ADDR:$MASTER_PORT of its workers.

Without the job's secret you see what guests of a store with TLS see: weft store serve --help says
more. A plain store on this host must belong to you or to root. ?any_owner=true behind the URL takes
any other user's.

The exit code is 3 if something did not come within --timeout (a key, a value in a queue, the others
at a barrier), or if a key to delete was not there. It is 1 if something else failed, and 2 if the
command line is wrong.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("expected one of serve, get, set, add, wait, watch, keys, delete, push, pop and barrier")
		},
	}
	cmd.AddCommand(serveCommand(stdout, stderr))
	for _, op := range storeOperations() {
		cmd.AddCommand(op.command(stdout, stderr))
	}
	return cmd
}

// storeFlags are those of every command that looks into a store.
type storeFlags struct {
	secrets.Member
	url, prefix string
	tls         bool
	tlsSaid     bool          // on the command line, whichever
	reach       time.Duration // how long it may take to connect
	timeout     time.Duration // of what waits for keys; 0: not at all
}

func (f *storeFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.url, "url", "", "the store, as tcp://HOST:PORT, file:///PATH or etcd://HOST,…/PREFIX (default that of $MASTER_ADDR and $MASTER_PORT)")
	flags.StringVar(&f.prefix, "prefix", "", "look at the keys that start with this and a slash")
	flags.BoolVar(&f.tls, "tls", false, "speak TLS with the store, by the job's secret or certificates (default where one is given, or is in the environment and the store on another machine, or has TLS)")
	flags.DurationVar(&f.reach, "connect-timeout", cli.AnswerPatience, "how long to try to reach the store")
	f.Member.Register(cmd)
}

// check refuses times that cannot be.
func (f *storeFlags) check() error {
	var errs []error
	if f.timeout < 0 {
		errs = append(errs, fmt.Errorf("--timeout: expected 0s or more, got %v", f.timeout))
	}
	if f.reach <= 0 {
		errs = append(errs, fmt.Errorf("--connect-timeout: expected more than 0s, got %v", f.reach))
	}
	errs = append(errs, f.CheckPlain(f.tlsSaid && !f.tls))
	return errors.Join(errs...)
}

// secure says whether to speak TLS: as the user says, or as the job's workers do. Where there is a
// secret nothing is said in plain text, but to a store of this host that has no TLS.
func (f *storeFlags) secure() (bool, error) {
	if f.tlsSaid {
		return f.tls, nil
	}
	if f.Given() {
		return true, nil
	}
	if text := os.Getenv(rpc.StoreTLSVariable); text != "" {
		secure, err := strconv.ParseBool(text)
		if err != nil {
			return false, fmt.Errorf("$%s: expected 1 or 0, got %q", rpc.StoreTLSVariable, text)
		}
		return secure, nil
	}
	u, err := url.Parse(f.url)
	members := secret.Named(os.Getenv)+os.Getenv(rpc.CAVariable) != ""
	if err != nil || u.Scheme != "tcp" || !members {
		return false, nil
	}
	if !reach.Loopback(u.Hostname()) {
		return true, nil
	}
	c, cancel := context.WithTimeout(context.Background(), f.reach)
	defer cancel()
	return reach.TakesTLS(c, u.Host, &tls.Config{InsecureSkipVerify: true}), nil //nolint:gosec // nothing is said: it is asked whether there is TLS
}

// open connects with the store. How long that may take has nothing to do with how long the
// operation waits: who waits for a key for a millisecond asks whether it is there, and must not
// hear that a store is unreachable which takes two to answer.
func (f *storeFlags) open(c context.Context) (store.Store, func(), error) {
	named := "--url"
	if f.url == "" {
		named = "$MASTER_ADDR and $MASTER_PORT"
		host, port := os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT")
		if host == "" || port == "" {
			return nil, nil, errors.New("expected the store: --url tcp://HOST:PORT, or $MASTER_ADDR and $MASTER_PORT")
		}
		f.url = "tcp://" + net.JoinHostPort(host, port)
	}
	cfg := store.OpenConfig{Guest: true, Timeout: f.patience(), Schemes: map[string]store.Opener{"etcd": etcdlogin.Open}}
	if scheme, _, ok := strings.Cut(f.url, "://"); ok && scheme != "tcp" && (f.Given() || f.tls) {
		return nil, nil, fmt.Errorf("%s: only a store at tcp:// takes a secret, or certificates, and this is at %s://: leave out --tls, --token-file, --ca, --cert and --key", named, scheme)
	}
	secure, err := f.secure()
	if err != nil {
		return nil, nil, err
	}
	if secure {
		id, err := f.Identity("--tls", "weft store", slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, nil, err
		}
		cfg.TLS = id.StoreTLS()
	}
	c, cancel := context.WithTimeout(c, f.reach)
	defer cancel()
	r, err := store.Open(c, f.url, cfg)
	if errors.Is(err, store.ErrBadURL) {
		return nil, nil, fmt.Errorf("%s: %w", named, err)
	}
	if err != nil {
		return nil, nil, f.explain(err)
	}
	s, end := r.Store, func() { _ = r.Close() }
	if f.prefix != "" {
		s = store.NewPrefix(f.prefix, s)
	}
	return s, end, nil
}

// patience is how long an operation may take: what the user says, or what an answer may.
func (f *storeFlags) patience() time.Duration { return cmp.Or(f.timeout, cli.AnswerPatience) }

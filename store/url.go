package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"
)

// OpenConfig is what a rendezvous URL does not say. Its zero value works.
type OpenConfig struct {
	LookupEnv func(string) (string, bool) // nil means os.LookupEnv
	Timeout   time.Duration               // of operations, and of Open, where there is no deadline; 0 means the URL's, or DefaultTimeout
	Limits    Limits
	Logger    *slog.Logger // for the server, where this rank hosts it

	// Rank and WorldSize are the caller's place if WorldSize is not 0. The URL must have none then.
	Rank, WorldSize int

	// Guest opens the store for somebody who has no rank, such as a person at a shell: the URL
	// needs none, nothing is hosted and nobody is told. Rendezvous.Rank is then -1.
	Guest bool

	// Bind is the host on which rank 0 listens if it is not the one in the URL: "0.0.0.0" for a
	// name that only others can resolve to this machine. See ServerConfig.Addr.
	Bind string

	// NoWait lets the rank that hosts the store go on before the others have come; torch's waits
	// for them.
	NoWait bool

	// TLS is for tcp:// and env://, for the server and for the clients alike; nil means plain text.
	// With it, who speaks plain text with the server is a guest, see Plain. ServerName is the URL's
	// host unless it is set.
	TLS *tls.Config

	// AnyOwner is ClientConfig.AnyOwner.
	AnyOwner bool

	// Schemes are the caller's own, by their name: {"etcd": etcd.Open} serves etcd://….
	Schemes map[string]Opener
}

// Opener makes the store of a scheme of the caller's own. Timeout, Limits, Logger and TLS of cfg
// are for it.
type Opener func(c context.Context, u URL, cfg OpenConfig) (Store, error)

// Rendezvous is a store and one's place among those who use it.
type Rendezvous struct {
	Store     Store
	Rank      int // in [0, WorldSize), or -1 for a guest
	WorldSize int // 0 for a guest

	server *Server // at the rank that hosts the store
}

// Close closes the store and, at the rank that hosts it, the server. The others lose their store
// with that: the hosting rank should be the last to close, which Close does not see to.
func (r Rendezvous) Close() error {
	var err error
	if r.Store != nil {
		err = r.Store.Close()
	}
	if r.server != nil {
		err = errors.Join(err, r.server.Close())
	}
	return err
}

// Open makes the store that a URL names, in one of these ways:
//
//   - env:// reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT from the environment. Rank and
//     world size may also stand in the URL, as in env://?rank=0&world_size=2.
//   - tcp://host:port?rank=0&world_size=2
//   - file:///path?rank=0&world_size=2
//   - a scheme of the caller's own, by OpenConfig.Schemes.
//
// With env:// and tcp:// rank 0 hosts the server at that host and port and waits until all ranks
// have joined, unless the environment has TORCHELASTIC_USE_AGENT_STORE=True: then the agent that
// started the workers hosts it, and every rank is a client.
//
// The URL may also have timeout=30s (or 30, which are seconds too), of operations, and dialect=1.13
// (or another release of PyTorch), which the server or the client then speaks, and any_owner=true
// (see ClientConfig.AnyOwner). Other parameters are ignored, PyTorch's use_libuv among them.
//
// A URL or environment that is wrong gives ErrBadURL with everything that is wrong with it.
func Open(c context.Context, rawURL string, cfg OpenConfig) (Rendezvous, error) {
	if cfg.LookupEnv == nil {
		cfg.LookupEnv = os.LookupEnv
	}
	p := parse(rawURL, cfg)
	if p.errs != nil {
		return Rendezvous{}, &Error{Op: "open", Addr: rawURL, Err: errors.Join(p.errs...)}
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = p.timeout
	}
	r := Rendezvous{Rank: p.Rank, WorldSize: p.WorldSize}
	var err error
	switch p.Scheme {
	case "env", "tcp":
		err = r.connect(c, p, cfg)
	case "file":
		var f *File
		if f, err = NewFile(p.Path, FileConfig{WorldSize: p.WorldSize, Timeout: cfg.Timeout, Limits: cfg.Limits}); err == nil {
			r.Store = f
		}
	default:
		if r.Store, err = cfg.Schemes[p.Scheme](c, p.URL, cfg); err == nil && r.Store == nil {
			err = &Error{Op: "open", Addr: rawURL, Err: errors.New("the scheme's opener gave neither a store nor an error")}
		}
	}
	if err != nil {
		return Rendezvous{}, err
	}
	return r, nil
}

// connect starts the server where this rank is to, and a client.
func (r *Rendezvous) connect(c context.Context, p place, cfg OpenConfig) error {
	agent, _ := cfg.LookupEnv("TORCHELASTIC_USE_AGENT_STORE")
	host := agent != "True" && p.Rank == 0
	client := ClientConfig{Addr: net.JoinHostPort(p.host, p.port), WorldSize: p.WorldSize, WaitForWorkers: host && !cfg.NoWait,
		Dialect: p.dialect, TLS: cfg.TLS, AnyOwner: cfg.AnyOwner || p.anyOwner, Timeout: cfg.Timeout, Limits: cfg.Limits}
	if cfg.TLS != nil && cfg.TLS.ServerName == "" {
		client.TLS = cfg.TLS.Clone()
		client.TLS.ServerName = p.host
	}
	if host {
		bind := p.host
		if cfg.Bind != "" {
			bind = cfg.Bind
		}
		var err error
		r.server, err = Serve(ServerConfig{Addr: net.JoinHostPort(bind, p.port), Dialect: p.dialect, TLS: cfg.TLS, Limits: cfg.Limits,
			Logger: cfg.Logger})
		if err != nil {
			return err
		}
		client.Addr, client.Dialect = r.server.Addr(), DialectAuto
	}
	cl, err := Dial(c, client)
	if err != nil {
		if r.server != nil {
			_ = r.server.Close()
		}
		return err
	}
	r.Store = cl
	return nil
}

// The schemes that Open knows by itself.
func ownScheme(name string) bool { return name == "env" || name == "tcp" || name == "file" }

func (p *place) wrong(format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("%w: "+format, append([]any{ErrBadURL}, args...)...))
}

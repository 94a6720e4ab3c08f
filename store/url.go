package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"time"
)

// OpenConfig is what a rendezvous URL does not say. Its zero value works.
type OpenConfig struct {
	LookupEnv func(string) (string, bool) // nil means os.LookupEnv
	Timeout   time.Duration               // of operations, and of Open, where there is no deadline; 0 means DefaultTimeout
	Limits    Limits
	Logger    *slog.Logger // for the server, where this rank hosts it

	// Bind is the host on which rank 0 listens if it is not the one in the URL: "0.0.0.0" for a name that only others
	// can resolve to this machine. See ServerConfig.Addr.
	Bind string

	// NoWait lets the rank that hosts the store go on before the others have come; torch's waits for them.
	NoWait bool
}

// Rendezvous is a store and one's place among those who use it.
type Rendezvous struct {
	Store     Store
	Rank      int // in [0, WorldSize)
	WorldSize int

	server *Server // at the rank that hosts the store
}

// Close closes the store and, at the rank that hosts it, the server. The others lose their store with that: the
// hosting rank should be the last to close, which Close does not see to.
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

// Open makes the store that a URL names, in one of three ways:
//
//   - env:// reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT from the environment. Rank and world size may also
//     stand in the URL, as in env://?rank=0&world_size=2.
//   - tcp://host:port?rank=0&world_size=2
//   - file:///path?rank=0&world_size=2
//
// With env:// and tcp:// rank 0 hosts the server at that host and port and waits until all ranks have joined, unless
// the environment has TORCHELASTIC_USE_AGENT_STORE=True: then the agent that started the workers hosts it, and every
// rank is a client. Other parameters of the URL are ignored.
//
// A URL or environment that is wrong gives ErrBadURL with everything that is wrong with it.
func Open(c context.Context, rawURL string, cfg OpenConfig) (Rendezvous, error) {
	fail := func(err error) (Rendezvous, error) {
		return Rendezvous{}, &Error{Op: "open", Addr: rawURL, Err: err}
	}
	if cfg.LookupEnv == nil {
		cfg.LookupEnv = os.LookupEnv
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return fail(fmt.Errorf("%w: %w", ErrBadURL, err))
	}
	p := place{url: u, query: u.Query(), env: cfg.LookupEnv}
	switch u.Scheme {
	case "env":
		p.fromEnv()
	case "tcp":
		p.fromTCP()
	case "file":
		p.fromFile()
	default:
		p.wrong("No rendezvous handler for %s://; there are env://, tcp:// and file://", u.Scheme)
	}
	if p.errs != nil {
		return fail(errors.Join(p.errs...))
	}
	r := Rendezvous{Rank: p.rank, WorldSize: p.world}
	if u.Scheme == "file" {
		r.Store, err = NewFile(u.Path, FileConfig{WorldSize: p.world, Timeout: cfg.Timeout, Limits: cfg.Limits})
	} else {
		err = r.connect(c, p, cfg)
	}
	if err != nil {
		return Rendezvous{}, err
	}
	return r, nil
}

// connect starts the server where this rank is to, and a client.
func (r *Rendezvous) connect(c context.Context, p place, cfg OpenConfig) error {
	agent, _ := cfg.LookupEnv("TORCHELASTIC_USE_AGENT_STORE")
	host := agent != "True" && p.rank == 0
	addr := net.JoinHostPort(p.host, p.port)
	if host {
		bind := p.host
		if cfg.Bind != "" {
			bind = cfg.Bind
		}
		var err error
		r.server, err = Serve(ServerConfig{Addr: net.JoinHostPort(bind, p.port), Limits: cfg.Limits, Logger: cfg.Logger})
		if err != nil {
			return err
		}
		addr = r.server.Addr()
	}
	client, err := Dial(c, ClientConfig{Addr: addr, WorldSize: p.world, WaitForWorkers: host && !cfg.NoWait, Timeout: cfg.Timeout,
		Limits: cfg.Limits})
	if err != nil {
		if r.server != nil {
			r.server.Close()
		}
		return err
	}
	r.Store = client
	return nil
}

// place collects what a URL says, and all that is wrong with it.
type place struct {
	url         *url.URL
	query       url.Values
	env         func(string) (string, bool)
	host, port  string
	rank, world int
	errs        []error
}

func (p *place) wrong(format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("%w: "+format, append([]any{ErrBadURL}, args...)...))
}

func (p *place) fromEnv() {
	rank, world := p.query.Get("rank"), p.query.Get("world_size")
	if rank == "" {
		rank = p.variable("RANK")
	}
	if world == "" {
		world = p.variable("WORLD_SIZE")
	}
	p.ranks(rank, world)
	p.host, p.port = p.variable("MASTER_ADDR"), p.variable("MASTER_PORT")
	p.checkPort()
}

func (p *place) fromTCP() {
	if p.host, p.port = p.url.Hostname(), p.url.Port(); p.host == "" {
		p.wrong("host missing: expected tcp://host:port?rank=…&world_size=…")
	}
	if p.port == "" {
		p.wrong("port number missing: expected tcp://host:port?rank=…&world_size=…")
	}
	p.checkPort()
	p.fromQuery()
}

func (p *place) fromFile() {
	if p.url.Path == "" || p.url.Host != "" {
		p.wrong("path missing: expected file:///absolute/path?rank=…&world_size=…")
	}
	p.fromQuery()
}

func (p *place) fromQuery() {
	rank, world := p.query.Get("rank"), p.query.Get("world_size")
	if rank == "" {
		p.wrong("rank parameter missing: expected %s://…?rank=…&world_size=…", p.url.Scheme)
	}
	if world == "" {
		p.wrong("size parameter missing: expected %s://…?rank=…&world_size=…", p.url.Scheme)
	}
	p.ranks(rank, world)
}

func (p *place) variable(name string) string {
	v, there := p.env(name)
	if !there || v == "" {
		p.wrong("environment variable %s expected, but not set", name)
	}
	return v
}

// ranks reads both numbers; the empty ones have been complained about.
func (p *place) ranks(rank, world string) {
	okRank, okWorld := p.number(&p.rank, "rank", rank), p.number(&p.world, "world size", world)
	if okWorld && p.world <= 0 {
		p.wrong("the world size must be positive, but is %d", p.world)
		okWorld = false
	}
	if okRank && (p.rank < 0 || okWorld && p.rank >= p.world) {
		p.wrong("the rank must be at least 0 and less than the world size %s, but is %d", world, p.rank)
	}
}

func (p *place) number(into *int, what, text string) bool {
	n, err := strconv.Atoi(text)
	if err != nil && text != "" {
		p.wrong("the %s must be a number, but is %q", what, text)
	}
	*into = n
	return err == nil
}

func (p *place) checkPort() {
	if _, err := strconv.ParseUint(p.port, 10, 16); err != nil && p.port != "" {
		p.wrong("the port must have a value from 0 to 65535, but is %q", p.port)
	}
}

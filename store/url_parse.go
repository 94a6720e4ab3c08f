package store

import (
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-project/weft/store/internal/kv"
)

// URL is a rendezvous URL taken apart, for who opens it.
type URL struct {
	Scheme string     // of scheme://host/path?query
	Host   string     // as it stands there; several hosts may have commas between them
	Path   string     // with the slash before it, unescaped
	Query  url.Values // all of it, rank and world_size included

	Rank, WorldSize int // the caller's place; -1 and 0 for a guest
}

// place collects what a URL and the environment say, and all that is wrong with it.
type place struct {
	URL
	cfg        OpenConfig
	host, port string // of env:// and tcp://
	timeout    time.Duration
	dialect    Dialect
	anyOwner   bool
	errs       []error
}

func parse(raw string, cfg OpenConfig) place {
	p := place{cfg: cfg}
	p.Rank = -1
	for name := range cfg.Schemes {
		if ownScheme(name) {
			p.wrong("OpenConfig.Schemes must not have %s://, which is there already", name)
		}
	}
	p.split(raw)
	if p.errs != nil {
		return p
	}
	p.common()
	switch p.Scheme {
	case "env":
		p.ranks("environment")
		p.host, p.port = p.variable("MASTER_ADDR"), p.variable("MASTER_PORT")
		p.checkPort()
	case "tcp":
		p.fromTCP()
		p.ranks("url")
	case "file":
		if p.Path == "" || p.Host != "" {
			p.wrong("path missing: expected file:///absolute/path?rank=…&world_size=…")
		}
		p.ranks("url")
	default:
		p.ranks("url")
	}
	return p
}

// split takes the URL apart. Package net/url would refuse several hosts with ports.
func (p *place) split(raw string) {
	scheme, rest, found := strings.Cut(raw, "://")
	if _, own := p.cfg.Schemes[scheme]; !found || !own && !ownScheme(scheme) {
		if _, _, err := net.SplitHostPort(raw); !found && err == nil {
			p.wrong("%q has no scheme; expected tcp://%s", kv.Clip(raw), kv.Clip(raw))
			return
		}
		there := slices.Sorted(maps.Keys(p.cfg.Schemes))
		there = append(there, "env", "tcp", "file")
		p.wrong("No rendezvous handler for %q; there are %s://, and OpenConfig.Schemes takes more",
			kv.Clip(scheme)+"://", strings.Join(there, "://, "))
		return
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest, query, _ := strings.Cut(rest, "?")
	path := ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		rest, path = rest[:i], rest[i:]
	}
	p.Scheme, p.Host = scheme, rest
	var err error
	if p.Path, err = url.PathUnescape(path); err != nil {
		p.wrong("the path %q: %w", path, err)
	}
	if p.Query, err = url.ParseQuery(query); err != nil {
		p.wrong("the query %q: %w", query, err)
	}
}

// common reads the parameters that all schemes have.
func (p *place) common() {
	var err error
	if p.dialect, err = ParseDialect(p.Query.Get("dialect")); err != nil {
		p.wrong("%w", err)
	}
	if text := p.Query.Get("any_owner"); text != "" {
		if p.anyOwner, err = strconv.ParseBool(text); err != nil {
			p.wrong("any_owner must be true or false, but is %q", text)
		}
	}
	text := p.Query.Get("timeout")
	if text == "" {
		return
	}
	if p.timeout, err = time.ParseDuration(text); err != nil {
		p.timeout, err = time.ParseDuration(text + "s")
	}
	if err != nil || p.timeout <= 0 {
		p.wrong("the timeout must be a positive time such as 30s or 5m, but is %q", text)
	}
}

func (p *place) fromTCP() {
	host, port, err := net.SplitHostPort(p.Host)
	if err != nil { // no port, or not one
		host = strings.TrimSuffix(strings.TrimPrefix(p.Host, "["), "]")
	}
	if p.host, p.port = host, port; host == "" {
		p.wrong("host missing: expected tcp://host:port?rank=…&world_size=…")
	}
	if p.Path != "" && p.Path != "/" {
		p.wrong("a tcp:// store has no path, and the url has %q; a prefix of keys is for who uses the store", p.Path)
	}
	if port == "" {
		p.wrong("port number missing: expected tcp://host:port?rank=…&world_size=…")
	}
	p.checkPort()
}

// ranks finds the caller's place, in the configuration, in the URL, or for env:// in the
// environment.
func (p *place) ranks(from string) {
	rank, world := p.Query.Get("rank"), p.Query.Get("world_size")
	switch {
	case p.cfg.Guest:
		return
	case p.cfg.WorldSize != 0:
		if rank != "" || world != "" {
			p.wrong("the url has node-specific arguments, rank or world_size, which OpenConfig says: leave out one or the other")
			return
		}
		rank, world = strconv.Itoa(p.cfg.Rank), strconv.Itoa(p.cfg.WorldSize)
	case from == "environment":
		if rank == "" {
			rank = p.variable("RANK")
		}
		if world == "" {
			world = p.variable("WORLD_SIZE")
		}
	default:
		if rank == "" {
			p.wrong("rank parameter missing: expected %s://…?rank=…&world_size=…", p.Scheme)
		}
		if world == "" {
			p.wrong("size parameter missing: expected %s://…?rank=…&world_size=…", p.Scheme)
		}
	}
	p.checkRanks(rank, world)
}

func (p *place) variable(name string) string {
	v, there := p.cfg.LookupEnv(name)
	if !there || v == "" {
		p.wrong("environment variable %s expected, but not set", name)
	}
	return v
}

// checkRanks reads both numbers; the empty ones have been complained about.
func (p *place) checkRanks(rank, world string) {
	okRank, okWorld := p.number(&p.Rank, "rank", rank), p.number(&p.WorldSize, "world size", world)
	if okWorld && p.WorldSize <= 0 {
		p.wrong("the world size must be positive, but is %d", p.WorldSize)
		okWorld = false
	}
	if okRank && (p.Rank < 0 || okWorld && p.Rank >= p.WorldSize) {
		p.wrong("the rank must be at least 0 and less than the world size %s, but is %d", world, p.Rank)
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

package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/wire"
)

// Plain says from whom a server takes connections that are not encrypted, such as those of
// PyTorch's clients.
//
// With a TLS configuration who speaks plain text is a guest: guests have a key space of their own
// behind the same port, with the server's limits once more. They share it with one another, and
// neither see nor change anything of those who speak TLS.
//
// Whose process a client of this host is, the kernel says, on Linux. Elsewhere all processes of the
// host count as the server's user's.
type Plain byte

// The choices. The zero value is right for most.
const (
	// PlainAuto takes plain text from processes of this host, of the server's own user and of root.
	// A server without TLS that listens on an address which other machines reach takes it from
	// everybody: that is what its operator asked for.
	PlainAuto   Plain = iota
	PlainAlways       // from everybody
	PlainNever        // from nobody; needs a TLS configuration
)

// Config says where a server listens and what it accepts. The zero value listens on a free
// port of 127.0.0.1.
type Config struct {
	// Addr is the host:port to listen on, and the only one; "" means 127.0.0.1:0. To listen on all
	// addresses say so: 0.0.0.0:29500. Beyond loopback there is no authentication without TLS: who
	// reaches the port can read and write everything.
	Addr string
	// Listener is used in place of Addr. The server closes it.
	Listener net.Listener

	// Dialect is what is spoken to those who do not open with the greeting of PyTorch 2.2 and
	// later, to whom it is spoken anyhow. Dialect22 means that all have to greet so.
	Dialect wire.Dialect

	TLS   *tls.Config // for clients that begin with a TLS handshake, on the same port; nil: there is no TLS
	Plain Plain       // who need not

	Journal JournalConfig // what is kept beyond the server's own end; by default nothing

	Limits kv.Limits    // of what clients may send; Limits.Memory also bounds, apart, all that they have half sent
	Logger *slog.Logger // hears why clients were closed; nil means nobody does

	// MaxClients is the most connections at a time, never more than three quarters of the files
	// that this process may have open; 0 means 65536. When one more comes the oldest is closed that
	// has shown nothing yet, or else that one. A fourth is kept for those who speak TLS where there
	// is TLS. Of the others nobody but the server's own user has more than half, another user of
	// the host, or another address (of IPv6 a network of 64 bits).
	MaxClients int
}

func (cfg Config) validate() error {
	errs := []error{kv.CheckLimits(cfg.Limits), wire.CheckDialect(cfg.Dialect)}
	if cfg.MaxClients < 0 {
		errs = append(errs, fmt.Errorf("MaxClients must not be negative, but is %d", cfg.MaxClients))
	}
	if cfg.Plain > PlainNever {
		errs = append(errs, fmt.Errorf("there is no Plain %d", cfg.Plain))
	}
	if cfg.Plain == PlainNever && cfg.TLS == nil {
		errs = append(errs, errors.New("PlainNever needs a TLS configuration, or nobody could be served"))
	}
	if cfg.Addr != "" && cfg.Listener != nil {
		errs = append(errs, errors.New("Addr and Listener exclude each other"))
	}
	if host, _, err := net.SplitHostPort(cfg.Addr); cfg.Addr != "" && err != nil {
		errs = append(errs, fmt.Errorf("bad address: %w", err))
	} else if cfg.Addr != "" && host == "" {
		errs = append(errs, fmt.Errorf("the address %q names no host: say 127.0.0.1 or, for all addresses, 0.0.0.0", cfg.Addr))
	}
	return errors.Join(errs...)
}

func (cfg Config) withDefaults() Config {
	if cfg.MaxClients == 0 {
		cfg.MaxClients = 1 << 16
	}
	files := fileLimit()
	cfg.MaxClients = min(cfg.MaxClients, files-files/filesPart)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Limits = kv.Defaulted(cfg.Limits)
	return cfg
}

// listen opens the one address.
func (cfg Config) listen() (net.Listener, error) {
	if cfg.Listener != nil {
		return cfg.Listener, nil
	}
	addr := cfg.Addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		_, port, _ := net.SplitHostPort(addr)
		return nil, fmt.Errorf("the server socket has failed to listen on any local network address (port %s): %w", port, err)
	}
	return l, nil
}

package store

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
)

// ServerConfig says where a server listens and what it accepts. The zero value listens on a free port of 127.0.0.1.
type ServerConfig struct {
	// Addr is the host:port to listen on, and the only one; "" means 127.0.0.1:0. To listen on all addresses say so:
	// 0.0.0.0:29500. There is no authentication: who reaches the port can read and write everything.
	Addr string

	Limits     Limits       // of what clients may send
	MaxClients int          // most connections at a time; more are closed at once. 0 means 65536
	Logger     *slog.Logger // hears at level debug why clients were closed; nil means nobody does
}

func (cfg ServerConfig) validate() error {
	errs := []error{cfg.Limits.validate()}
	if cfg.MaxClients < 0 {
		errs = append(errs, fmt.Errorf("MaxClients must not be negative, but is %d", cfg.MaxClients))
	}
	if host, _, err := net.SplitHostPort(cfg.Addr); cfg.Addr != "" && err != nil {
		errs = append(errs, fmt.Errorf("bad address: %w", err))
	} else if cfg.Addr != "" && host == "" {
		errs = append(errs, fmt.Errorf("the address %q names no host: say 127.0.0.1 or, for all addresses, 0.0.0.0", cfg.Addr))
	}
	return errors.Join(errs...)
}

// Server keeps a store for clients over TCP. It speaks the protocol of PyTorch 1.13's TCPStore and differs from that
// server in four points: a client that sends half a command or reads no replies delays nobody else; lengths are bounded;
// a COMPARE_SET that creates a key wakes those who wait for it; and who watches a key twice gets its news once.
//
// An oversized or unknown command, a GET of a missing key and an ADD to what is no number close that client's
// connection, as the protocol has no way to say more.
type Server struct {
	cfg      ServerConfig
	limits   Limits
	listener net.Listener
	wg       sync.WaitGroup // the accepting goroutine, one per connection, and short-lived flushes

	mu     sync.Mutex // taken before any peer.mu
	state  *state
	peers  map[clientID]*peer
	last   clientID
	closed bool
}

// Serve starts a server. It runs until it is closed.
func Serve(cfg ServerConfig) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, &Error{Op: "serve", Addr: cfg.Addr, Err: err}
	}
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	s := newServer(cfg)
	l, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		_, port, _ := net.SplitHostPort(cfg.Addr)
		err = fmt.Errorf("the server socket has failed to listen on any local network address (port %s): %w", port, err)
		return nil, &Error{Op: "serve", Addr: cfg.Addr, Err: err}
	}
	s.listener = l
	s.wg.Go(s.accept)
	return s, nil
}

func newServer(cfg ServerConfig) *Server {
	if cfg.MaxClients == 0 {
		cfg.MaxClients = 1 << 16
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	limits := cfg.Limits.withDefaults()
	return &Server{cfg: cfg, limits: limits, state: newState(limits), peers: map[clientID]*peer{}}
}

// Addr is the host:port the server listens on, its real port included.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close disconnects all clients and returns when all goroutines of the server have ended. The keys are lost. Closing
// twice is no error.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	for _, p := range s.peers {
		p.nc.Close()
	}
	s.mu.Unlock()
	if s.listener != nil {
		s.listener.Close()
	}
	s.wg.Wait()
	return nil
}

func (s *Server) accept() {
	pause := time.Duration(0)
	for {
		nc, err := s.listener.Accept()
		switch {
		case err == nil:
			pause = 0
			s.attach(nc)
		case errors.Is(err, net.ErrClosed):
			return
		default: // out of file descriptors, most likely: clients that leave will make room
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.cfg.Logger.Warn("store cannot accept a connection", "addr", s.Addr(), "err", err, "retry", pause)
			time.Sleep(pause)
		}
	}
}

// attach takes nc over and serves it in a goroutine of its own.
func (s *Server) attach(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.peers) >= s.cfg.MaxClients {
		s.cfg.Logger.Debug("store refuses a client", "client", nc.RemoteAddr(), "clients", len(s.peers))
		nc.Close()
		return
	}
	s.last++
	p := newPeer(s.last, nc, s.limits)
	p.wire = wire{dialect: Dialect113}
	s.peers[p.id] = p
	s.wg.Go(func() { s.serve(p) })
}

// serve reads one client's commands until it goes or breaks a rule.
func (s *Server) serve(p *peer) {
	in := newDecoder(p, p.wire, s.limits)
	var err error
	for err == nil {
		var cmd command
		if cmd, err = in.command(); err == nil {
			err = s.handle(p, cmd)
		}
	}
	s.mu.Lock()
	delete(s.peers, p.id)
	s.state.drop(p.id)
	s.mu.Unlock()
	p.bye()
	if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		s.cfg.Logger.Debug("store closes a client", "client", p.nc.RemoteAddr(), "err", err)
	}
}

// handle applies a command and hands the replies out. Nothing in it waits for another client.
func (s *Server) handle(p *peer, cmd command) error {
	var failed error
	s.mu.Lock()
	for _, r := range s.state.apply(p.id, cmd, nil) {
		if r.err != nil {
			failed = fmt.Errorf("key %q: %w", clip(cmd.key), r.err)
			continue
		}
		to := s.peers[r.to]
		if to.add(r) && to != p && !s.closed {
			s.wg.Go(func() { to.flush() })
		}
	}
	s.mu.Unlock()
	if failed == nil {
		failed = p.drainIfFull()
	}
	return failed
}

package server

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-project/weft/internal/eager"
	"github.com/weft-project/weft/store/internal/door"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
	"github.com/weft-project/weft/store/internal/wire"
)

// Server keeps a store for clients over TCP. It speaks the protocol of PyTorch's TCPStore in all
// its dialects, and Weft's own mode of it (package wire), and differs from PyTorch's servers on
// purpose:
//
//   - A client that sends half a command or reads no replies delays nobody else.
//   - Lengths, numbers of keys, memory and clients are bounded, and silent clients make room for
//     others.
//   - Not everybody who reaches the port is served, see [Plain].
//   - It listens on the address it is given and on no other.
//   - A COMPARE_SET that creates a key wakes those who wait for it, in every dialect, and one that
//     does not wakes nobody.
//   - A MULTI_SET is applied once and as a whole, and a MULTI_GET sees one moment.
//   - A BARRIER ends when as many have come as it asks for; no SET, ADD or smaller BARRIER ends it.
//   - Who watches a key twice gets its news once. A push wakes one of those who wait to pop.
//   - The greeting of PyTorch 2.2 and later is read whole, however it arrives, and a wrong one ends
//     the connection.
//
// An oversized or unknown command, one that would exceed the memory, an ADD to what is no number,
// and before PyTorch 2.2 a GET of a missing key close that client's connection, as the protocol has
// no way to say more; from 2.2 on what is missing is read as empty.
type Server struct {
	cfg      Config // with its defaults
	limits   kv.Limits
	listener net.Listener
	far      bool           // other machines reach the listener
	wg       sync.WaitGroup // the accepting goroutine, one per connection, and short-lived writers
	in, out  atomic.Uint64  // bytes
	encoders sync.Pool
	lookout  *eager.Lookout
	keeper   *keeper   // its journal; nil: there is none
	lost     sync.Once // it was told that the journal failed

	mu       sync.Mutex // taken before any peer.mu, and held for what is in the spaces
	members  space      // of those who showed that they are of the job; without TLS of everybody
	guests   space      // of those who speak plain text to a server with TLS
	peers    map[state.ClientID]*peer
	last     state.ClientID
	closed   bool
	door     *door.Door
	lines    door.Lines    // of the log, about strangers
	crowded  bool          // the last connection was refused
	replies  []state.Reply // for reuse
	counters counters
}

// Serve starts a server. It runs until it is closed.
func Serve(cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, &kv.Error{Op: "serve", Addr: cfg.Addr, Err: err}
	}
	s := newServer(cfg)
	err := s.openJournal()
	if err == nil {
		if s.listener, err = cfg.listen(); err != nil && s.keeper != nil {
			s.keeper.Close()
		}
	}
	if err != nil {
		return nil, &kv.Error{Op: "serve", Addr: cfg.Addr, Err: err}
	}
	s.far = reachable(s.listener.Addr())
	s.wg.Go(s.accept)
	return s, nil
}

func newServer(cfg Config) *Server {
	asked := cfg.MaxClients
	cfg = cfg.withDefaults()
	if asked > cfg.MaxClients {
		cfg.Logger.Warn("store takes fewer clients than it is to, as this process may not open more files", "clients", cfg.MaxClients, "asked", asked)
	}
	kept := 0
	if cfg.TLS != nil {
		kept = cfg.MaxClients / membersPart
	}
	return &Server{cfg: cfg, limits: cfg.Limits, door: door.New(cfg.MaxClients, kept), members: space{state: state.New(cfg.Limits)},
		guests: space{state: state.New(cfg.Limits), mark: []byte{guestsRecord}}, peers: map[state.ClientID]*peer{}, lookout: eager.NewSoloLookout()}
}

// Addr is the host:port the server listens on, its real port included.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close disconnects all clients and returns when all goroutines of the server have ended. What is
// not in a journal is lost; an error is the journal's. Closing twice is no error.
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
	if s.keeper == nil {
		return nil
	}
	return s.keeper.Close()
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
		case s.makesRoom():
			time.Sleep(5 * time.Millisecond) // the connection is closed when its reader has noticed
		default: // out of file descriptors, most likely: clients that leave will make room
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.cfg.Logger.Warn("store cannot accept a connection", "addr", s.Addr(), "err", err, "retry", pause)
			time.Sleep(pause)
		}
	}
}

// encoder gives an encoder that is empty.
func (s *Server) encoder() *wire.Encoder {
	if e, ok := s.encoders.Get().(*wire.Encoder); ok {
		return e
	}
	return &wire.Encoder{Buf: make([]byte, 0, 512)}
}

// recycle takes it back.
func (s *Server) recycle(e *wire.Encoder) {
	if cap(e.Buf) <= 4*wire.EncoderFull {
		*e = wire.Encoder{Buf: e.Buf[:0]}
		s.encoders.Put(e)
	}
}

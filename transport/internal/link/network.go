package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/mux"
	"github.com/weft-project/weft/transport/internal/quicstream"
	"github.com/weft-project/weft/transport/internal/wire"
)

// Config configures [New]. Only Identity is required.
type Config struct {
	Identity *identity.Identity
	Limits   wire.Limits
	// IdleTimeout is for how long a peer may be silent before it counts as lost; default 2.4 s. The
	// shorter one of the two ends counts. A peer that was killed is noticed after at most
	// IdleTimeout + KeepAlive.
	IdleTimeout time.Duration
	// KeepAlive is how often a quiet link is asked for a sign of life; default 500 ms. At least
	// every half IdleTimeout.
	KeepAlive time.Duration
	// MaxStreams is how many streams a peer may have open on a link at a time; default 4096.
	MaxStreams int64
	// Devices whose tensors may go by LaneCUDA; those that are no accelerators, or whose memory
	// cannot be shared, take no part.
	Devices []device.Device
	// Lanes that may be used, of LaneNames; nil means all. LaneQUIC is always used where no other
	// one serves.
	Lanes []string
	// LendCopies has LaneLocal lend a copy of each tensor, in memory where nothing lies, now or
	// later, but what that peer was lent. Without it a tensor is lent as it lies: a peer can read
	// what is written there later, too, by this tensor's owner or by those of later tensors. A copy
	// costs its time.
	LendCopies bool
	// Logger hears of refused peers. nil means slog.Default().
	Logger *slog.Logger
}

func (cfg Config) withDefaults() Config {
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, 2400*time.Millisecond)
	cfg.KeepAlive = cmp.Or(cfg.KeepAlive, 500*time.Millisecond)
	cfg.MaxStreams = cmp.Or(cfg.MaxStreams, 4096)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return cfg
}

// Check reports every violation in one error.
func (cfg Config) Check() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("transport: Config."+format, args...))
	}
	if cfg.Identity == nil {
		bad("Identity is missing; use IdentityFromToken or IdentityFromFiles")
	}
	if cfg.IdleTimeout < 0 {
		bad("IdleTimeout is %v; it must be positive, or 0 for the default", cfg.IdleTimeout)
	}
	if cfg.KeepAlive < 0 {
		bad("KeepAlive is %v; it must be positive, or 0 for the default", cfg.KeepAlive)
	}
	if cfg.MaxStreams < 0 || cfg.MaxStreams > math.MaxInt32 {
		bad("MaxStreams is %d; it must be from 0 (the default) to %d", cfg.MaxStreams, math.MaxInt32)
	}
	if err := CheckLanes(cfg.Lanes); err != nil {
		bad("Lanes: %w", err)
	}
	return errors.Join(append(errs, cfg.Limits.Check())...)
}

const (
	streamWindow = 16 << 20 // bytes on their way on one stream; a large tensor should not wait for credit
)

// network is the Network over QUIC.
type network struct {
	cfg      Config
	codec    *wire.Codec
	pieces   *mux.Pieces
	makers   []lane.Maker
	refusals *identity.Refusals
	known    *acquaintances
	crowds   *crowds
	calls    *atomic.Uint64                                                       // of all links: see lane.Env
	bind     func(c context.Context, family, addr string) (net.PacketConn, error) // tests replace UDP

	mu    sync.Mutex
	dials map[string]*socket // by "udp4" or "udp6": the sockets from which this worker dials
}

// New makes a Network over QUIC: TLS 1.3 with both ends verified, one UDP socket per listener and
// one for dialling.
//
// Where the system's limit keeps UDP buffers small, quic-go prints a warning with package log. This
// package is silent unless asked, so it sets quic-go's own switch, the environment variable
// QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING, where the user has not set it. (On Linux,
// net.core.rmem_max and wmem_max of 7500000 serve best.)
func New(cfg Config) (wire.Network, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	codec, err := wire.NewCodec(cfg.Limits)
	if err != nil {
		return nil, err
	}
	const noWarning = "QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING"
	if _, set := os.LookupEnv(noWarning); !set {
		if err := os.Setenv(noWarning, "true"); err != nil {
			return nil, fmt.Errorf("transport: silence quic-go: %w", err)
		}
	}
	cfg = cfg.withDefaults()
	return &network{cfg: cfg, codec: codec, pieces: mux.NewPieces(), makers: laneMakers(cfg), refusals: identity.NewRefusals(cfg.Logger), known: newAcquaintances(),
		crowds: newCrowds(), calls: new(atomic.Uint64), bind: new(net.ListenConfig).ListenPacket, dials: map[string]*socket{}}, nil
}

// quicConfig is quic-go's configuration; kept is how many two-way streams the peer may open: the
// dialler opens one.
func (n *network) quicConfig(kept int64) *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout:           lane.HandshakeTimeout,
		MaxIdleTimeout:                 n.cfg.IdleTimeout,
		KeepAlivePeriod:                n.cfg.KeepAlive,
		InitialStreamReceiveWindow:     streamWindow / 4,
		MaxStreamReceiveWindow:         streamWindow,
		InitialConnectionReceiveWindow: quicstream.LinkWindow / 4,
		MaxConnectionReceiveWindow:     quicstream.LinkWindow,
		MaxIncomingStreams:             kept,
		MaxIncomingUniStreams:          quicstream.Streams,
	}
}

func (n *network) Listen(c context.Context, addr string) (wire.Listener, error) {
	if err := c.Err(); err != nil {
		return nil, &wire.Error{Op: "listen", Peer: addr, Err: err}
	}
	pc, err := n.bind(c, "udp", addr)
	if err != nil {
		return nil, fmt.Errorf("transport: listen at %s: %w", addr, err)
	}
	g := newGate(n.refusals.ConnContext, n.known, identity.MarksOf(n.cfg.Identity), n.refusals.Crowd)
	s := newSocket(pc, nil, g, n.calls)
	accepts := n.quicConfig(1)
	accepts.HandshakeIdleTimeout = listenTimeout
	ql, err := s.tr.ListenEarly(identity.TLSConfig(n.cfg.Identity, wire.ALPN, quicstream.ALPN), accepts)
	if err != nil {
		s.leave()
		return nil, fmt.Errorf("transport: listen at %s: %w", addr, err)
	}
	return newListener(n, s, g, ql, n.serveLanes(ql.Addr())), nil
}

// dialOnce is a Dial that a crowd may refuse.
func (n *network) dialOnce(c context.Context, addr string) (*Link, error) {
	fail := func(sentinel, cause error) (*Link, error) {
		_, reason := identity.Refused(cause)
		return nil, &wire.Error{Op: "dial", Peer: addr, Err: sentinel, Reason: reason, Cause: cause}
	}
	to, err := resolve(c, addr)
	if err != nil {
		return fail(wire.ErrUnreachable, err)
	}
	s, err := n.dialSocket(c, to)
	if err != nil {
		return fail(wire.ErrUnreachable, err)
	}
	conn, err := s.tr.Dial(c, to, identity.TLSConfig(n.cfg.Identity, wire.ALPN), n.quicConfig(-1))
	if err != nil {
		s.leave()
		return fail(dialError(err), err)
	}
	context.AfterFunc(conn.Context(), s.leave)
	l, err := n.setUpDialled(c, s, conn, addr)
	if err != nil {
		_ = conn.CloseWithError(quicstream.CodeClosed, "the link was not set up")
		return fail(dialError(err), err)
	}
	return l, nil
}

// dialSocket gives the socket for dialling to that kind of address, with a use for the caller.
func (n *network) dialSocket(c context.Context, to *net.UDPAddr) (*socket, error) {
	family := "udp6"
	if to.IP.To4() != nil {
		family = "udp4"
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.dials[family]; s != nil && s.acquire() {
		return s, nil
	}
	pc, err := n.bind(c, family, ":0")
	if err != nil {
		return nil, err
	}
	n.dials[family] = newSocket(pc, identity.MarksOf(n.cfg.Identity).IDs(), nil, n.calls)
	return n.dials[family], nil
}

// resolve finds the address to dial; of several, the first IPv4 one, as net.Listen does.
func resolve(c context.Context, addr string) (*net.UDPAddr, error) {
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(c, "udp", service)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(c, "ip", cmp.Or(host, "localhost"))
	if err != nil {
		return nil, err
	}
	best := ips[0]
	for _, ip := range ips {
		if ip.Unmap().Is4() {
			best = ip
			break
		}
	}
	return &net.UDPAddr{IP: best.Unmap().AsSlice(), Port: port, Zone: best.Zone()}, nil
}

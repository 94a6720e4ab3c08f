package bulk

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strconv"
	"sync"

	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

// ALPN keeps a stripe's TLS session apart from a link's.
const ALPN = wire.ALPN + " bulk"

// maker makes the lane bulk: TLS 1.3 over TCP, as many connections as the ends have use for.
type maker struct {
	tls      func() *tls.Config // for stripes
	refusals *identity.Refusals
	stripes  int
	local    bool // LaneLocal may be used, where both ends are on one host
}

// New makes the lane's maker. local says that LaneLocal may be used too; log hears of refused
// peers.
func New(id *identity.Identity, local bool, log *slog.Logger) *maker {
	return &maker{tls: func() *tls.Config { return stripeConfig(id) }, refusals: identity.NewRefusals(log), stripes: stripesFor(runtime.GOMAXPROCS(0)), local: local}
}

// stripesFor says how many stripes make use of that many processors: one keeps two of them busy, at
// one end encryption, at the other decryption, and the workers have other work too.
func stripesFor(procs int) int { return max(1, min(4, procs/4)) }

func (m *maker) Lane() string { return wire.LaneBulk }

func (m *maker) Offer() ([]byte, error) { return []byte{byte(m.stripes)}, nil }

// stripeConfig is the identity's, for stripes: nothing is small on them.
func stripeConfig(id *identity.Identity) *tls.Config {
	conf := identity.TLSConfig(id, ALPN)
	conf.DynamicRecordSizingDisabled = true
	conf.ClientAuth = tls.RequestClientCert // VerifyConnection refuses who shows none, and says so
	return conf
}

// binding is what both ends of a TLS session know, and nobody in between.
func binding(conn *tls.Conn) ([]byte, error) {
	s := conn.ConnectionState()
	return s.ExportKeyingMaterial("EXPORTER weft bulk", nil, 32)
}

func (m *maker) Join(c context.Context, with lane.Peer, answer []byte) (*lane.End, error) {
	a, err := parseAnswer(answer, m.stripes)
	if err != nil {
		return nil, err
	}
	peer, ok := with.Addr.(*net.UDPAddr)
	if !ok {
		return nil, fmt.Errorf("transport: no TCP address is known for %v", with.Addr)
	}
	host := peer.IP.String()
	if peer.Zone != "" {
		host += "%" + peer.Zone
	}
	addr := net.JoinHostPort(host, strconv.Itoa(int(a.port)))
	conns, errs := make([]net.Conn, a.stripes), make([]error, a.stripes)
	var wg sync.WaitGroup
	for i := range conns {
		wg.Go(func() { conns[i], errs[i] = m.dial(c, addr, &with.Secret, i) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		closeAll(conns)
		return nil, err
	}
	return newEnd(conns), nil
}

// newEnd is an end of the lane whose stripes are up.
func newEnd(conns []net.Conn) *lane.End {
	return &lane.End{
		NewChannel: func(env lane.Env) lane.Channel { return newChannel(env, conns) },
		Drop:       func() { closeAll(conns) },
	}
}

func closeAll(conns []net.Conn) {
	for _, conn := range conns {
		if conn != nil {
			closeStripe(conn)
		}
	}
}

// dial makes a stripe.
func (m *maker) dial(c context.Context, addr string, secret *[32]byte, stripe int) (net.Conn, error) {
	var d net.Dialer
	tcp, err := d.DialContext(c, "tcp", addr)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(&wide{Conn: tcp}, m.tls())
	stop := context.AfterFunc(c, func() { _ = tcp.Close() })
	err = introduce(conn, secret, stripe)
	if !stop() {
		err = c.Err()
	}
	if err != nil {
		_ = tcp.Close()
		return nil, fmt.Errorf("transport: connection %d of lane bulk to %s: %w", stripe, addr, err)
	}
	return conn, nil
}

// introduce says which link a dialled stripe belongs to, and has both ends prove that it does.
func introduce(conn *tls.Conn, secret *[32]byte, stripe int) error {
	if err := conn.Handshake(); err != nil {
		return err
	}
	bound, err := binding(conn)
	if err != nil {
		return err
	}
	tag := lane.LinkTag(secret)
	b := append(append(tag[:], byte(stripe)), lane.Prove(secret, "dialler", stripe, bound)...)
	if _, err := conn.Write(b); err != nil {
		return err
	}
	var proof [sha256.Size]byte
	if _, err := io.ReadFull(conn, proof[:]); err != nil {
		return err
	}
	if !hmac.Equal(proof[:], lane.Prove(secret, "listener", stripe, bound)) {
		return fmt.Errorf("%w: who answers is not the other end of the link", wire.ErrIdentity)
	}
	return nil
}

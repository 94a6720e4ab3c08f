package hostile

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/weft-project/weft/transport"
)

// Attack is what one client does again and again.
type Attack struct {
	Kind string // one of Kinds, or Burn
	Addr string // of the victim
	Cert string // PEM files of a member of the job, for the kinds that have them
	Key  string
	For  time.Duration
	// Share of one processor that Burn uses.
	Share float64
}

// Burn attacks nobody: it uses a share of a processor, so that an attack's effect can be told from
// that of the attacker's own work.
const Burn = "burn"

// protocol is that of links, for the job that was given no id.
var protocol = func() string {
	sum := sha256.Sum256([]byte("weft job id\x00none"))
	return transport.ALPN + " " + hex.EncodeToString(sum[:16])
}()

// kinds are the attacks and how often each is made per second. An attacker without a limit takes a
// processor from its victim wherever both run on one machine, and then nothing is learnt about the
// victim.
var kinds = map[string]struct {
	perSecond float64
	once      func(c context.Context, a Attack, r *rand.Rand) error
}{
	"datagrams":  {5000, datagram},
	"handshakes": {50, handshake},
	"garbage":    {50, garbage},
	"streams":    {2, streams},
	"claims":     {50, claim},
}

// Kinds are the attacks.
func Kinds() []string {
	return []string{"datagrams", "handshakes", "garbage", "streams", "claims"}
}

// Report is what an attack came to.
type Report struct {
	Times int           // how often it was made
	CPU   time.Duration // that the attacker used
	Err   string        // what the last one ended with
}

// Run attacks for as long as it says.
func (a Attack) Run(c context.Context) (Report, error) {
	c, cancel := context.WithTimeout(c, a.For)
	defer cancel()
	var report Report
	before := CPU()
	if a.Kind == Burn {
		burn(c, a.Share)
		return Report{CPU: CPU() - before}, nil
	}
	kind, ok := kinds[a.Kind]
	if !ok {
		return report, fmt.Errorf("no attack %q; there are %v", a.Kind, Kinds())
	}
	r := rand.New(rand.NewPCG(1, 2))
	start := time.Now()
	for c.Err() == nil {
		if err := kind.once(c, a, r); err != nil && c.Err() == nil {
			report.Err = err.Error()
		}
		report.Times++
		next := start.Add(time.Duration(float64(report.Times) / kind.perSecond * float64(time.Second)))
		select {
		case <-time.After(time.Until(next)):
		case <-c.Done():
		}
	}
	report.CPU = CPU() - before
	return report, nil
}

func burn(c context.Context, share float64) {
	const slice = 10 * time.Millisecond
	for c.Err() == nil {
		for end := time.Now().Add(time.Duration(share * float64(slice))); time.Now().Before(end); { //nolint:revive // it is to use time
		}
		time.Sleep(time.Duration((1 - min(share, 1)) * float64(slice)))
	}
}

// datagram sends what looks like QUIC and what does not.
func datagram(c context.Context, a Attack, r *rand.Rand) error {
	conn, err := net.Dial("udp", a.Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	b := noise(r, 1+r.IntN(1400))
	if r.IntN(2) == 0 && len(b) > 5 {
		b[0] |= 0xc0 // a long header
		binary.BigEndian.PutUint32(b[1:], []uint32{1, 0, 0x6b3343cf}[r.IntN(3)])
	}
	_, err = conn.Write(b)
	return err
}

func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// dial makes a connection; with shows the member's certificate.
func (a Attack) dial(c context.Context, with bool) (*quic.Conn, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{protocol}, InsecureSkipVerify: true} // nobody is trusted
	cert, err := stranger()
	if with {
		cert, err = tls.LoadX509KeyPair(a.Cert, a.Key)
	}
	if err != nil {
		return nil, err
	}
	conf.Certificates = []tls.Certificate{cert}
	return quic.DialAddr(c, a.Addr, conf, &quic.Config{HandshakeIdleTimeout: time.Second, MaxIncomingUniStreams: 100})
}

// handshake is by a stranger, or ends in its middle.
func handshake(c context.Context, a Attack, r *rand.Rand) error {
	if r.IntN(2) == 0 {
		var cancel context.CancelFunc
		c, cancel = context.WithTimeout(c, time.Millisecond)
		defer cancel()
	}
	conn, err := a.dial(c, false)
	if err != nil {
		return err
	}
	defer hangUp(conn)
	_, err = conn.AcceptUniStream(c) // the client's part is over before the victim has looked at the certificate
	if err == nil {
		return errors.New("a stranger got in")
	}
	return nil
}

// garbage is by a member, on many streams.
func garbage(c context.Context, a Attack, r *rand.Rand) error {
	conn, err := a.dial(c, true)
	if err != nil {
		return err
	}
	defer hangUp(conn)
	for range 10 {
		s, err := conn.OpenStream()
		if err != nil {
			break
		}
		if _, err := s.Write(noise(r, r.IntN(4096))); err != nil {
			break
		}
	}
	return conn.SendDatagram(noise(r, 100))
}

// streams opens ten thousand of the connection's, as far as the victim lets it, and then as many of
// the link's, with a message in each that never ends.
func streams(c context.Context, a Attack, _ *rand.Rand) error {
	return a.member(c, func(conn *quic.Conn) []byte {
		b := descriptor()
		for i := range uint64(10_000) {
			b = append(b, chunk(i, true, []byte{1})...)
		}
		for range 10_000 {
			s, err := conn.OpenStream()
			if err != nil {
				break
			}
			if _, err := s.Write([]byte{0}); err != nil {
				break
			}
		}
		return b
	})
}

// claim sets a link up as a member does and says that a tensor of a terabyte comes.
func claim(c context.Context, a Attack, r *rand.Rand) error {
	return a.member(c, func(*quic.Conn) []byte { return append(descriptor(), chunk(0, false, terabyte(r))...) })
}

// member writes on a link's first stream, and reads for a while. The error says how the victim
// ended it.
func (a Attack) member(c context.Context, say func(*quic.Conn) []byte) error {
	conn, err := a.dial(c, true)
	if err != nil {
		return err
	}
	defer hangUp(conn)
	s, err := conn.OpenStream()
	if err != nil {
		return err
	}
	if _, err := s.Write(say(conn)); err != nil {
		return err
	}
	_ = s.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	answered, err := io.Copy(io.Discard, s)
	if answered == 0 {
		return fmt.Errorf("no answer at all: %w", err)
	}
	return err
}

// descriptor allows many streams and offers no lane.
func descriptor() []byte { return []byte{5, 0, 0, 4, 0, 0, 0} }

// chunk is bytes of a message on the dialler's n-th stream.
func chunk(n uint64, more bool, body []byte) []byte {
	b := []byte{1, 0, 0, 0}
	if more {
		b[1] = 1
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	b = binary.LittleEndian.AppendUint64(b, n<<1|1)
	return append(b, body...)
}

// terabyte is the beginning of a frame: one tensor or very many, of float32, together 2⁴⁰ bytes.
func terabyte(r *rand.Rand) []byte {
	tensors := uint16(1)
	if r.IntN(2) == 0 {
		tensors = 65535
	}
	b := []byte{1, 0}
	b = binary.LittleEndian.AppendUint16(b, tensors)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, 1<<40)
	b = append(b, 1, 1, 0, 0, 0, 0, 0, 0)
	return binary.LittleEndian.AppendUint64(b, 1<<38)
}

func hangUp(conn *quic.Conn) { _ = conn.CloseWithError(0, "") } // whatever the victim thinks of it

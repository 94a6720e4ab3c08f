package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"time"

	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
	"github.com/weft-project/weft/store/internal/who"
	"github.com/weft-project/weft/store/internal/wire"
)

// greeting is a way to begin a connection.
type greeting byte

const (
	// PyTorch 2.5 and later, and Weft. A server of 1.13 takes it for a SET with a key of so many
	// bytes that it hangs up at once, see nonce.
	greetPing greeting = iota
	// PyTorch 2.2 to 2.4, which know no PING. Four NUMKEYS make 1.13 hang up.
	greetKeys
	// PyTorch 1.13: an empty CHECK, which servers of the others do not answer so.
	greetProbe
	// The servers that need no greeting, where the caller says that it is one.
	greetNothing
)

// greetings are what a client tries that speaks d, in this order.
func greetings(d wire.Dialect) []greeting {
	switch d {
	case wire.DialectAuto:
		return []greeting{greetPing, greetKeys, greetProbe}
	case wire.Dialect22:
		return []greeting{greetPing, greetKeys}
	}
	return []greeting{greetNothing}
}

// nonce is what a PING says. Its third byte ends up as the highest of a length where a server of
// PyTorch 1.13 reads a SET: 2^63 and more is refused, less might be allocated.
func nonce() uint32 { return rand.Uint32() | 0xff<<16 }

// probeTime is how long a server of PyTorch 1.13 may take to answer; others never do.
const probeTime = 30 * time.Second

// errTLS is what a certificate or a mistaken configuration makes of a connection, every time.
var errTLS = errors.New("no TLS session with the store")

// connect makes a connection and greets the server in the way that it understood before, or else in
// all there are. What the server speaks is found out once: one that is being shut down must not be
// taken for an old one.
func (cl *Client) connect(k *call) (*link, error) {
	cl.mu.Lock()
	ways := cl.ways
	cl.mu.Unlock()
	var last error
	for _, way := range ways {
		l, greeted, err := cl.dialAs(k, way)
		if err == nil {
			cl.mu.Lock()
			cl.ways = []greeting{way}
			cl.mu.Unlock()
			return l, nil
		}
		if last = err; !greeted || !hungUp(err) {
			break
		}
	}
	return nil, last
}

// dialAs makes a connection. greeted says that the server accepted it.
func (cl *Client) dialAs(k *call, way greeting) (l *link, greeted bool, err error) {
	c, cancel := context.WithDeadline(k.c, k.deadline)
	defer cancel()
	defer context.AfterFunc(cl.life, cancel)()
	nc, err := cl.cfg.dial(c, cl.base.Addr)
	if err != nil {
		return nil, false, err
	}
	switch {
	case cl.cfg.TLS != nil:
		nc, err = cl.secure(c, nc)
	case !cl.cfg.AnyOwner:
		err = vouch(c, nc)
	}
	if err != nil {
		return nil, false, err
	}
	l = newLink(nc, wire.Protocol{Dialect: wire.Dialect22}, cl.base.Limits)
	if err := cl.adopt(l); err != nil {
		return nil, false, err
	}
	l.arm(k)
	err = l.greet(way, cl.cfg.Dialect)
	l.disarm()
	if err != nil {
		cl.drop(l)
		if wire.RefusedTLS(err) { // TLS 1.3: what the server thinks of our certificate comes after the handshake
			return nil, false, fmt.Errorf("%w: %w", errTLS, err)
		}
		return nil, true, fmt.Errorf("greeting the server: %w", err)
	}
	return l, true, nil
}

// vouch says that a plain server is one of another machine, or of a user that could do anything to
// this process anyhow. Otherwise it closes nc, and nothing was said on it. A server that has not
// accepted it yet is waited for.
func vouch(c context.Context, nc net.Conn) error {
	const first, most = 50 * time.Microsecond, 50 * time.Millisecond
	for pause := first; ; pause = min(2*pause, most) {
		uid, err := who.UID(nc)
		switch {
		case err == nil && who.Trusted(uid), errors.Is(err, who.ErrElsewhere), errors.Is(err, who.ErrUnsaid):
			return nil
		case err == nil:
			_ = nc.Close()
			return fmt.Errorf("%w: uid %d, and this is uid %d", kv.ErrForeign, uid, os.Geteuid())
		case !errors.Is(err, who.ErrPending):
			if !quiet(nc) { // then nobody has it any more
				err = lastWords(nc)
				_ = nc.Close()
				return fmt.Errorf("the server closed the connection: %w", err)
			}
			_ = nc.Close()
			return fmt.Errorf("whose the server is, is not known: %w (with TLS, or ClientConfig.AnyOwner, nobody asks)", err)
		}
		select {
		case <-time.After(pause):
		case <-c.Done():
			_ = nc.Close()
			return fmt.Errorf("%w: %w", c.Err(), err)
		}
	}
}

// lastWords is why a server has hung up, or will: io.EOF where it has not said that.
func lastWords(nc net.Conn) error {
	var heard [4]byte
	_ = nc.SetReadDeadline(time.Now().Add(cancelGrace))
	_, _ = io.ReadFull(nc, heard[:])
	return cmp.Or(refusal(heard), io.EOF)
}

// refusal is what a server means that says this in place of an answer, nil if it is none.
func refusal(heard [4]byte) error {
	switch string(heard[:]) {
	case wire.RefusesUser:
		return fmt.Errorf("%w, and this is uid %d: give both the job's secret, with which they speak TLS, "+
			"or have it serve everybody", kv.ErrStranger, os.Geteuid())
	case wire.RefusesPlain:
		return fmt.Errorf("%w, and this client speaks plain text: give it the job's secret, or certificates", kv.ErrNeedsTLS)
	}
	return nil
}

// secure puts TLS over nc, or closes it.
func (cl *Client) secure(c context.Context, nc net.Conn) (net.Conn, error) {
	conf := cl.cfg.TLS.Clone()
	if conf.ServerName == "" {
		conf.ServerName, _, _ = net.SplitHostPort(cl.base.Addr)
	}
	t := tls.Client(nc, conf)
	err := t.HandshakeContext(c)
	if err == nil {
		return t, nil
	}
	_ = nc.Close()
	var header tls.RecordHeaderError
	switch {
	case errors.As(err, &header):
		err = fmt.Errorf("%w: %w: it answers in plain text; ask it so, without ClientConfig.TLS, "+
			"or serve with TLS: %w", errTLS, kv.ErrNotTLS, err)
	case strings.Contains(err.Error(), "no application protocol"): // an alert has no type of its own
		err = fmt.Errorf("%w: %w: %w", errTLS, kv.ErrOtherJob, err)
	case wire.RefusedTLS(err) || c.Err() == nil && !hungUp(err):
		err = fmt.Errorf("%w: %w", errTLS, err)
	case c.Err() == nil:
		err = fmt.Errorf("%w, as far as can be told: it hangs up during the TLS handshake: %w",
			kv.ErrNotTLS, err)
	default:
		err = fmt.Errorf("during the TLS handshake: %w", err)
	}
	return nil, err
}

// greet begins the conversation and learns which one it will be.
func (l *link) greet(way greeting, d wire.Dialect) error {
	own := state.Command{Op: state.OpCheck, Keys: []string{wire.ModeKey}}
	switch way {
	case greetPing:
		ping := state.Command{Op: state.OpPing, Delta: int64(nonce())}
		if err := l.send(&state.Command{Op: state.OpValidate}, &ping, &own); err != nil {
			return err
		}
		r, err := l.read(&ping)
		if err == nil && r.N != ping.Delta {
			var heard [4]byte
			binary.LittleEndian.PutUint32(heard[:], uint32(r.N)) //nolint:gosec // as it came
			if err = refusal(heard); err == nil {
				err = fmt.Errorf("%w: ping failed, invalid nonce returned: %#x, expected %#x", kv.ErrProtocol, r.N, ping.Delta)
			}
		}
		if err != nil {
			return err
		}
	case greetKeys:
		count := state.Command{Op: state.OpNumKeys}
		if err := l.send(&state.Command{Op: state.OpValidate}, &count, &count, &count, &count, &own); err != nil {
			return err
		}
		for range 4 {
			if _, err := l.read(&count); err != nil {
				return err
			}
		}
	case greetProbe:
		l.in.Dialect = wire.Dialect113
		if enough := time.Now().Add(probeTime); enough.Before(l.end) {
			l.until(enough)
		}
		r, err := l.ask(state.Command{Op: state.OpCheck})
		if err == nil && !r.OK {
			err = fmt.Errorf("%w: an empty check was answered with no", kv.ErrProtocol)
		}
		return err
	case greetNothing:
		l.in.Dialect = d
		return nil
	}
	r, err := l.read(&own)
	l.in.Own = r.OK
	return err
}

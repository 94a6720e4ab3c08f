package main

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/weft-project/weft/store"
)

// identity is the TLS configuration of both ends, which verify one another. Every process makes the
// same.
func identity() (*tls.Config, error) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"store"}, NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0),
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(nil, cert, cert, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, RootCAs: pool, ServerName: "store",
		ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}, nil
}

// serveUnix makes a server at a unix socket in a folder that goes with it.
func serveUnix() (*store.Server, func(), error) {
	dir, err := os.MkdirTemp("", "weft-bench-*")
	if err != nil {
		return nil, nil, err
	}
	remove := func() { _ = os.RemoveAll(dir) }
	l, err := net.Listen("unix", filepath.Join(dir, "store"))
	if err == nil {
		var s *store.Server
		if s, err = store.Serve(store.ServerConfig{Listener: l}); err == nil {
			return s, remove, nil
		}
	}
	remove()
	return nil, nil, err
}

// way is one to reach a store on this host.
type way struct {
	name string
	dial func(context.Context) (net.Conn, error)
	took []time.Duration // for a round trip, the median of each turn
	came []time.Duration // to make a client
	open func(context.Context) (io.Closer, error)
}

// ways measures an add, and how long it takes to make a client, over plain TCP, over TLS and over a
// unix socket, in turns.
func (b *bench) ways(c context.Context, plain *process) error {
	secret, err := start(c, "serve-tls")
	if err != nil {
		return err
	}
	defer func() { _ = secret.stop() }()
	unix, err := start(c, "serve-unix")
	if err != nil {
		return err
	}
	defer func() { _ = unix.stop() }()
	conf, err := identity()
	if err != nil {
		return err
	}
	all := []*way{
		{name: "tcp", dial: dialler("tcp", plain.addr), open: opener(plain.addr, nil)},
		{name: "tls", dial: func(c context.Context) (net.Conn, error) {
			return (&tls.Dialer{Config: conf}).DialContext(c, "tcp", secret.addr)
		}, open: opener(secret.addr, conf)},
		{name: "unix", dial: dialler("unix", unix.addr)},
	}
	for range b.turns {
		for _, w := range all {
			if err := w.measure(c, b.sizes.trips); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	for _, w := range all {
		b.tellMedian("add/over="+w.name, b.sizes.trips*b.turns, w.took)
		if w.open != nil {
			b.tellMedian("dial/over="+w.name, b.dials()*b.turns, w.came)
		}
	}
	return nil
}

// dials is how many clients a turn makes.
func (b *bench) dials() int { return max(b.sizes.trips/30, 2) }

// tellMedian prints the median of medians.
func (b *bench) tellMedian(name string, n int, mids []time.Duration) {
	slices.Sort(mids)
	mid := mids[len(mids)/2]
	b.emit(b.lane, name, n, mid*time.Duration(n), micros(mid), "p50-µs")
}

func dialler(network, addr string) func(context.Context) (net.Conn, error) {
	return func(c context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(c, network, addr) }
}

func opener(addr string, conf *tls.Config) func(context.Context) (io.Closer, error) {
	return func(c context.Context) (io.Closer, error) {
		return store.Dial(c, store.ClientConfig{Addr: addr, TLS: conf, Timeout: patience})
	}
}

// measure is one turn of one way.
func (w *way) measure(c context.Context, trips int) error {
	nc, err := w.dial(c)
	if err != nil {
		return err
	}
	defer nc.Close()
	var answer [8]byte
	ask := binary.LittleEndian.AppendUint64(text([]byte{3}, "n"), 1)
	mid, err := median(trips, func() error {
		_, errAsk := nc.Write(ask)
		_, errAnswer := io.ReadFull(nc, answer[:])
		return errors.Join(errAsk, errAnswer)
	})
	if err != nil {
		return err
	}
	w.took = append(w.took, mid)
	if w.open == nil {
		return nil
	}
	mid, err = median(max(trips/30, 2), func() error {
		cl, err := w.open(c)
		if err != nil {
			return err
		}
		return cl.Close()
	})
	w.came = append(w.came, mid)
	return err
}

// besideSilent measures an add and the making of a client over TLS, alone and beside many
// connections that say nothing, in turns.
func (b *bench) besideSilent(c context.Context, _ *process) error {
	server, err := start(c, "serve-tls")
	if err != nil {
		return err
	}
	defer func() { _ = server.stop() }()
	conf, err := identity()
	if err != nil {
		return err
	}
	w := [2]way{}
	for i := range w {
		w[i].dial = func(c context.Context) (net.Conn, error) {
			return (&tls.Dialer{Config: conf}).DialContext(c, "tcp", server.addr)
		}
		w[i].open = opener(server.addr, conf)
	}
	for range b.turns {
		if err := w[0].measure(c, b.sizes.trips); err != nil {
			return err
		}
		all, err := crowd(c, server.addr, b.connections, nil)
		if err == nil {
			err = w[1].measure(c, b.sizes.trips)
		}
		all.closeAll()
		if err != nil {
			return err
		}
	}
	for i, n := range []int{0, b.connections} {
		b.tellMedian(fmt.Sprintf("tls-add/silent=%d", n), b.sizes.trips*b.turns, w[i].took)
		b.tellMedian(fmt.Sprintf("tls-dial/silent=%d", n), b.dials()*b.turns, w[i].came)
	}
	return nil
}

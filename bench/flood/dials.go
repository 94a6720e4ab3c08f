//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/weft-project/weft/transport"
)

const (
	atATime   = 8                     // handshakes of one address
	patience  = 50 * time.Millisecond // for the demand to show that the address is one's own, and the answer to it
	overheard = 1024                  // marks
)

// An Initial packet of QUIC: RFC 9000, section 17.2.2.
const (
	initial  = 0xc0
	idAt     = 5 // where the length of the listener's id stands; the dialler's follows it
	aToken   = 0x01
	ofNobody = 0x07
)

// dialler is a socket whose dials stall: it hears nothing but the demand to show that it hears.
type dialler struct {
	net.PacketConn
	tokens bool // its first packets have a token that nobody gave
}

func (d dialler) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		if n, from, err := d.PacketConn.ReadFrom(b); err != nil || n > 0 && b[0]&0xf0 == 0xf0 {
			return n, from, err
		}
	}
}

func (d dialler) WriteTo(b []byte, to net.Addr) (int, error) {
	if at, ok := tokenAt(b); ok && d.tokens && b[at] == 0 {
		_, err := d.PacketConn.WriteTo(slices.Concat(b[:at], []byte{aToken, ofNobody}, b[at+1:]), to)
		return len(b), err
	}
	return d.PacketConn.WriteTo(b, to)
}

// tokenAt says where the length of the token of an Initial packet stands: after the two ids.
func tokenAt(b []byte) (int, bool) {
	at := idAt
	for range 2 {
		if len(b) <= at || b[0]&0xf0 != initial {
			return 0, false
		}
		at += 1 + int(b[at])
	}
	return at, len(b) > at
}

// replayed are marks that were overheard, in turn.
type replayed struct {
	marks [][]byte
	next  *atomic.Int64
}

func (r replayed) GenerateConnectionID() (quic.ConnectionID, error) {
	return quic.ConnectionIDFromBytes(r.marks[r.next.Add(1)%int64(len(r.marks))]), nil
}

func (r replayed) ConnectionIDLen() int { return len(r.marks[0]) }

// floodHandshakes begins handshakes from many addresses and ends none.
func floodHandshakes(o order) error {
	to, err := net.ResolveUDPAddr("udp", o.At)
	if err != nil {
		return err
	}
	conf := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{transport.ALPN}} //nolint:gosec // it never gets that far
	var begun, next atomic.Int64
	var under sync.WaitGroup
	for host := range strangers {
		udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 1, byte(1+host))})
		if err != nil {
			return err
		}
		defer udp.Close() //nolint:errcheck // the process ends
		tr := &quic.Transport{Conn: dialler{udp, o.Tokens}}
		if o.Marks != nil {
			tr.ConnectionIDGenerator = replayed{o.Marks, &next}
		}
		for range atATime {
			under.Go(func() {
				for begun.Add(1) <= int64(o.Count) {
					c, cancel := context.WithTimeout(context.Background(), patience)
					_, _ = tr.Dial(c, to, conf, &quic.Config{}) // it fails: nothing is heard
					cancel()
				}
			})
		}
	}
	under.Wait()
	return nil
}

// overhear listens where a member dials, and keeps the ids that it chooses, with their marks.
func overhear(n transport.Network) (marks [][]byte, err error) {
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	defer udp.Close() //nolint:errcheck // it was only read
	b := make([]byte, 1<<11)
	var under sync.WaitGroup
	defer under.Wait()
	for len(marks) < overheard {
		c, cancel := context.WithCancel(context.Background())
		under.Go(func() { _, _ = n.Dial(c, udp.LocalAddr().String()) }) // nobody answers
		k, err := udp.Read(b)
		cancel()
		if err != nil {
			return nil, err
		}
		if at, ok := tokenAt(b[:k]); ok {
			from := idAt + 1 + int(b[idAt]) + 1
			marks = append(marks, slices.Clone(b[from:at]))
		}
	}
	return marks, nil
}

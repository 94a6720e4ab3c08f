package link

import (
	"encoding/binary"
	"net"
)

// heed says of a datagram that has come whether quic-go is to see it.
type heed func(datagram []byte, from net.Addr) bool

// The versions of QUIC that quic-go speaks, and how the first byte of their Handshake packets
// begins, with which a dialler shows that it has heard the answer: RFC 9000, section 17.2.4, and
// RFC 9369, section 3.2.
const (
	quicV1, quicV1Handshake = 0x00000001, 0xe0
	quicV2, quicV2Handshake = 0x6b3343cf, 0xf0
)

// dials says whether a datagram may ask for a handshake, or for the versions that are spoken: it
// has the long header that all versions have in common (RFC 8999, section 5.1), and begins with no
// Handshake packet. by is the id that its sender has chosen for itself, which marks are on; nil
// where there is none.
func dials(datagram []byte) (by []byte, ok bool) {
	if len(datagram) == 0 || datagram[0]&0x80 == 0 {
		return nil, false
	}
	const fixed = 1 + 4 // the first byte and the version
	if len(datagram) < fixed {
		return nil, true
	}
	switch first, version := datagram[0]&0xf0, binary.BigEndian.Uint32(datagram[1:]); {
	case version == quicV1 && first == quicV1Handshake, version == quicV2 && first == quicV2Handshake:
		return nil, false
	}
	rest := datagram[fixed:]
	for range 2 { // the connection's id at the listener, and at the dialler
		if len(rest) == 0 || len(rest) <= int(rest[0]) {
			return nil, true
		}
		by, rest = rest[1:1+int(rest[0])], rest[1+int(rest[0]):]
	}
	return by, true
}

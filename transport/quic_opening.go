package transport

import (
	"encoding/binary"
	"net"
)

// heed says of a datagram that has come whether quic-go is to see it.
type heed func(datagram []byte, from net.Addr) bool

// The versions of QUIC that quic-go speaks, and how their first packets begin: RFC 9000, section 17.2.2, and RFC 9369, section 3.
const (
	quicV1, quicV1Initial = 0x00000001, 0xc0
	quicV2, quicV2Initial = 0x6b3343cf, 0xd0
)

// opens says whether a datagram asks for a handshake and shows nothing yet: it begins with an Initial packet that has no token. by is the
// id that the dialler has chosen for itself.
func opens(datagram []byte) (by []byte, ok bool) {
	const fixed = 1 + 4 // the first byte and the version
	if len(datagram) < fixed {
		return nil, false
	}
	first, version := datagram[0]&0xf0, binary.BigEndian.Uint32(datagram[1:])
	if !(first == quicV1Initial && version == quicV1) && !(first == quicV2Initial && version == quicV2) {
		return nil, false
	}
	rest := datagram[fixed:]
	for range 2 { // the connection's id at the listener, and at the dialler
		if len(rest) == 0 || len(rest) <= int(rest[0]) {
			return nil, false
		}
		by, rest = rest[1:1+int(rest[0])], rest[1+int(rest[0]):]
	}
	return by, len(rest) > 0 && rest[0] == 0 // the token's length
}

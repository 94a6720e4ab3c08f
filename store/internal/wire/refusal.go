package wire

import (
	"crypto/tls"
	"errors"
	"net"
)

// Refusal is what a server says to who speaks plain text and is another user of its host, before it
// hangs up. No answer of any dialect begins so: it is no PING's, whose third byte is 0xff, no byte
// that ends a wait, and too short for a number.
const Refusal = "!uid"

// RefusedTLS says whether the other end has ended a handshake, and said why.
func RefusedTLS(err error) bool {
	var alert tls.AlertError
	var op *net.OpError
	return errors.As(err, &alert) || errors.As(err, &op) && op.Op == "remote error"
}

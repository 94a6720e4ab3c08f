package wire

import (
	"crypto/tls"
	"errors"
	"net"
)

// What a server says to a client that it does not serve, before it hangs up. No answer of any
// dialect begins so: it is no PING's, whose third byte is 0xff, no byte that ends a wait, and too
// short for a number.
const (
	RefusesUser  = "!uid"   // to who speaks plain text and is another user of its host
	RefusesPlain = "!tls"   // to who speaks plain text where TLS is a must
	RefusesTLS   = "!plain" // to who speaks TLS where there is none; long enough to be read as a record of it
)

// RefusedTLS says whether the other end has ended a handshake, and said why.
func RefusedTLS(err error) bool {
	var alert tls.AlertError
	var op *net.OpError
	return errors.As(err, &alert) || errors.As(err, &op) && op.Op == "remote error"
}

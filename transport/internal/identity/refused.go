package identity

import (
	"errors"

	"github.com/quic-go/quic-go"
)

// RefusedByPeer is what it means that the other end ends a handshake over a certificate.
const RefusedByPeer = "the peer has another secret, or another CA: " +
	"it does not take this worker's certificate"

// Refused says whether a handshake failed over a certificate or the job's id, and in which words to
// tell so.
func Refused(err error) (bool, string) {
	var t *quic.TransportError
	if !errors.As(err, &t) || !t.ErrorCode.IsCryptoError() {
		return false, ""
	}
	switch t.ErrorCode - 0x100 { // the TLS alert
	case 120: // no application protocol
		return true, "the peer has no protocol in common with this worker: " + anotherJob
	case 42, 43, 44, 45, 46, 48, 49, 116: // bad, unsupported, revoked, expired, unknown certificate; unknown CA; access denied; certificate required
	default:
		return false, ""
	}
	if t.Remote {
		return true, RefusedByPeer
	}
	return true, "this worker does not take the peer's certificate"
}

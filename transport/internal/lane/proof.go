package lane

import (
	"crypto/hmac"
	"crypto/sha256"
	"time"

	"github.com/quic-go/quic-go"
)

// LinkTag finds the link that a stripe belongs to. It tells nothing about the secret.
func LinkTag(secret *[32]byte) (tag [16]byte) {
	copy(tag[:], Prove(secret, "tag", 0, nil))
	return tag
}

// Prove shows that its maker knows the link's secret and is an end of the TLS session from which
// binding was exported. role keeps one end from sending the other's proof back.
func Prove(secret *[32]byte, role string, stripe int, binding []byte) []byte {
	mac := hmac.New(sha256.New, secret[:])
	mac.Write([]byte{byte(len(role)), byte(stripe)})
	mac.Write([]byte(role))
	mac.Write(binding)
	return mac.Sum(nil)
}

// How long a link's beginning may last.
const (
	HandshakeTimeout = 5 * time.Second  // without any answer
	JoinTimeout      = 2 * time.Second  // for joining a lane: on a busy machine TLS takes a part of it
	SetUpTimeout     = HandshakeTimeout // for all words of a set-up together
)

const secretContext = "EXPORTER-weft-lane-"

// ExportSecret takes a lane's secret from the link's TLS session.
func ExportSecret(conn *quic.Conn, lane string) (Peer, error) {
	w := Peer{Addr: conn.RemoteAddr()}
	tls := conn.ConnectionState().TLS
	key, err := tls.ExportKeyingMaterial(secretContext+lane, nil, len(w.Secret))
	if err != nil {
		return w, err
	}
	copy(w.Secret[:], key)
	return w, nil
}

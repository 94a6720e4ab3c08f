package transport

import (
	"crypto/hmac"
	"crypto/sha256"
	"time"

	"github.com/quic-go/quic-go"
)

// linkTag finds the link that a stripe belongs to. It tells nothing about the secret.
func linkTag(secret *[32]byte) (tag [16]byte) {
	copy(tag[:], prove(secret, "tag", 0, nil))
	return tag
}

// prove shows that its maker knows the link's secret and is an end of the TLS session from which binding was exported. role
// keeps one end from sending the other's proof back.
func prove(secret *[32]byte, role string, stripe int, binding []byte) []byte {
	mac := hmac.New(sha256.New, secret[:])
	mac.Write([]byte{byte(len(role)), byte(stripe)})
	mac.Write([]byte(role))
	mac.Write(binding)
	return mac.Sum(nil)
}

const (
	handshakeTimeout = 5 * time.Second  // without any answer
	laneTimeout      = time.Second      // for joining a lane
	setUpTimeout     = handshakeTimeout // for all words of a set-up together
	secretContext    = "EXPORTER-weft-lane-"
)

// exportSecret takes a lane's secret from the link's TLS session.
func exportSecret(conn *quic.Conn, lane string) (laneWith, error) {
	w := laneWith{peer: conn.RemoteAddr()}
	tls := conn.ConnectionState().TLS
	key, err := tls.ExportKeyingMaterial(secretContext+lane, nil, len(w.secret))
	if err != nil {
		return w, err
	}
	copy(w.secret[:], key)
	return w, nil
}

package meet

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"io"
)

// The ends of a connection of the local lane greet each other: the dialler sends the link's key,
// which connection this is, and a proof; the listener answers with its own. A proof shows that its
// maker knows the link's secret; it differs for each end and connection, so that nobody can send
// another's.
const (
	helloSize = 16 + 1 + sha256.Size
)

var errGreeting = errors.New("transport: who answers at the unix socket is not the peer")

func proofOf(secret [32]byte, end string, key []byte, role byte) []byte {
	mac := hmac.New(sha256.New, secret[:])
	mac.Write([]byte("weft local lane, " + end))
	mac.Write(key)
	mac.Write([]byte{role})
	return mac.Sum(nil)
}

// greetServer is the dialler's part.
func greetServer(conn io.ReadWriter, secret [32]byte, key []byte, role byte) error {
	hello := append(append([]byte(nil), key...), role)
	if _, err := conn.Write(append(hello, proofOf(secret, "dialler", key, role)...)); err != nil {
		return err
	}
	var proof [sha256.Size]byte
	if _, err := io.ReadFull(conn, proof[:]); err != nil {
		return err
	}
	if !hmac.Equal(proof[:], proofOf(secret, "listener", key, role)) {
		return errGreeting
	}
	return nil
}

// greetDialler is the listener's part. secretOf knows the links that are expected.
func greetDialler(conn io.ReadWriter, secretOf func(key [16]byte) ([32]byte, bool)) (key [16]byte, role byte, err error) {
	var hello [helloSize]byte
	if _, err := io.ReadFull(conn, hello[:]); err != nil {
		return key, 0, err
	}
	copy(key[:], hello[:])
	role = hello[len(key)]
	secret, ok := secretOf(key)
	if !ok || role >= MaxRoles || !hmac.Equal(hello[len(key)+1:], proofOf(secret, "dialler", key[:], role)) {
		return key, 0, errGreeting
	}
	_, err = conn.Write(proofOf(secret, "listener", key[:], role))
	return key, role, err
}

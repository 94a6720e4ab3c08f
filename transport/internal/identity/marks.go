package identity

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"

	"github.com/quic-go/quic-go"
)

const (
	markNonce = 4 // bytes of a connection's id that are random
	markSum   = 4 // and of its authentication code
)

// Marks make the ids of the connections that a worker dials, in which the job's members see that a
// member chose them. In a crowd a listener answers no other dials. A mark proves nothing: who
// overhears one, or is dialled by a member, may send it again, and has what all strangers have
// where there is no crowd. A listener chooses ids without marks: whoever dials sees those. Where
// certificates are the user's own, members have no secret in common, and there are none.
type Marks struct{ key []byte }

// MarksOf are those that a member makes and knows.
func MarksOf(id *Identity) Marks { return id.marks }

// IDs are those of a socket that dials; nil, which leaves them to quic-go, where there are no
// marks.
func (m Marks) IDs() quic.ConnectionIDGenerator {
	if m.key == nil {
		return nil
	}
	return m
}

// GenerateConnectionID implements [quic.ConnectionIDGenerator].
func (m Marks) GenerateConnectionID() (quic.ConnectionID, error) {
	id := make([]byte, markNonce, m.ConnectionIDLen())
	rand.Read(id) //nolint:errcheck // it never fails
	return quic.ConnectionIDFromBytes(append(id, m.sum(id)...)), nil
}

// ConnectionIDLen implements [quic.ConnectionIDGenerator].
func (m Marks) ConnectionIDLen() int { return markNonce + markSum }

// Made says whether there are any.
func (m Marks) Made() bool { return m.key != nil }

// On says whether an id has the mark.
func (m Marks) On(id []byte) bool {
	return m.key != nil && len(id) == m.ConnectionIDLen() && subtle.ConstantTimeCompare(m.sum(id[:markNonce]), id[markNonce:]) == 1
}

func (m Marks) sum(nonce []byte) []byte {
	h := hmac.New(sha256.New, m.key)
	h.Write(nonce)
	return h.Sum(nil)[:markSum]
}

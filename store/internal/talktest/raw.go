package talktest

import (
	"encoding/hex"
	"io"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Raw is a client that sends and expects bytes.
type Raw struct {
	t  *testing.T
	NC net.Conn
}

// NewRaw is one on a connection.
func NewRaw(t *testing.T, nc net.Conn) Raw { return Raw{t, nc} }

// Send sends bytes that [Unhex] reads.
func (r Raw) Send(bytes string) {
	r.t.Helper()
	_, err := r.NC.Write(Unhex(r.t, bytes))
	require.NoError(r.t, err)
}

// Expect reads such bytes, and fails the test if others come.
func (r Raw) Expect(want string) {
	r.t.Helper()
	w := Unhex(r.t, want)
	got := make([]byte, len(w))
	_, err := io.ReadFull(r.NC, got)
	require.NoError(r.t, err)
	require.Equal(r.t, hex.EncodeToString(w), hex.EncodeToString(got))
}

// ExpectClosed reads to the end: the server hung up and had nothing more to say.
func (r Raw) ExpectClosed() {
	r.t.Helper()
	n, err := r.NC.Read(make([]byte, 1))
	require.Zero(r.t, n)
	require.Error(r.t, err)
	require.NotErrorIs(r.t, err, os.ErrDeadlineExceeded, "the server kept the connection")
}

// Alive asks for the number of keys, which must be answered.
func (r Raw) Alive() {
	r.t.Helper()
	r.Send("06")
	_, err := io.ReadFull(r.NC, make([]byte, 8))
	require.NoError(r.t, err)
}

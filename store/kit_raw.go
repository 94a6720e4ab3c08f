package store

import (
	"encoding/hex"
	"io"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// raw is a client that sends and expects bytes.
type raw struct {
	t  *testing.T
	nc net.Conn
}

func (r raw) send(bytes string) {
	r.t.Helper()
	_, err := r.nc.Write(unhex(r.t, bytes))
	require.NoError(r.t, err)
}

func (r raw) expect(want string) {
	r.t.Helper()
	w := unhex(r.t, want)
	got := make([]byte, len(w))
	_, err := io.ReadFull(r.nc, got)
	require.NoError(r.t, err)
	require.Equal(r.t, hex.EncodeToString(w), hex.EncodeToString(got))
}

// expectClosed reads to the end: the server hung up and had nothing more to say.
func (r raw) expectClosed() {
	r.t.Helper()
	n, err := r.nc.Read(make([]byte, 1))
	require.Zero(r.t, n)
	require.Error(r.t, err)
	require.NotErrorIs(r.t, err, os.ErrDeadlineExceeded, "the server kept the connection")
}

// alive asks for the number of keys, which must be answered.
func (r raw) alive() {
	r.t.Helper()
	r.send("06")
	_, err := io.ReadFull(r.nc, make([]byte, 8))
	require.NoError(r.t, err)
}

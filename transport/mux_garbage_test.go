package transport

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/transporttest"
)

func TestGarbageEndsItsStreamAndNothingElse(t *testing.T) {
	leak.Check(t)
	id := fromToken(t, transporttest.Token(), "w", time.Now)
	l := listen(t, Config{Identity: id})
	n, err := New(Config{Identity: id})
	require.NoError(t, err)
	here, err := n.Dial(t.Context(), l.Addr())
	require.NoError(t, err)
	defer here.Close("")
	there, err := l.Accept(t.Context())
	require.NoError(t, err)
	defer there.Close("")

	raw := here.(*quicLink)
	garbage := bytes.Repeat([]byte{0xff}, 100)
	bad, err := raw.Open(t.Context())
	require.NoError(t, err)
	require.NoError(t, bad.(*stream).sendPieces(t.Context(), garbage, chunk{kind: chunkMessage}))
	s, err := there.Accept(t.Context())
	require.NoError(t, err)
	_, err = s.Recv(t.Context(), nil)
	require.ErrorIs(t, err, ErrFrame)
	require.ErrorIs(t, context.Cause(s.Context()), ErrReset)
	_, err = bad.Recv(t.Context(), nil)
	require.ErrorIs(t, err, ErrReset)

	good, err := here.Open(t.Context())
	require.NoError(t, err)
	defer good.Reset(nil)
	require.NoError(t, good.Send(t.Context(), &Message{Header: []byte("hi")}))
	s, err = there.Accept(t.Context())
	require.NoError(t, err)
	defer s.Reset(nil)
	m, err := s.Recv(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "hi", string(m.Header))
}

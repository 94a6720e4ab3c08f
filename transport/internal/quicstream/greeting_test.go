package quicstream

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/transporttest"
)

func TestTheDiallerOfAConnectionForTensorsIsNotFooledEither(t *testing.T) {
	leak.Check(t)
	id, err := identity.FromToken(transporttest.Token(), transporttest.Job, "w", time.Now)
	require.NoError(t, err)
	conf := identity.TLSConfig(id, ALPN)
	l, err := quic.ListenAddr("127.0.0.1:0", conf, nil)
	require.NoError(t, err)
	defer l.Close()
	secret := &[32]byte{7}
	for _, answer := range []func(heard, bound []byte) []byte{
		func(heard, _ []byte) []byte { return heard[16:] },
		func([]byte, []byte) []byte { return make([]byte, 32) },
		func([]byte, []byte) []byte { return nil },
		func(_, bound []byte) []byte { return lane.Prove(&[32]byte{8}, "listener", 0, bound) },
	} {
		conn, err := transporttest.RawDial(t, l.Addr().String(), identity.TLSConfig(id, ALPN))
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() { done <- Greet(t.Context(), conn, secret) }()
		served, err := l.Accept(t.Context())
		require.NoError(t, err)
		bound, err := binding(served)
		require.NoError(t, err)
		s, err := served.AcceptStream(t.Context())
		require.NoError(t, err)
		heard := make([]byte, greetingSize)
		_, err = io.ReadFull(s, heard)
		require.NoError(t, err)
		_, err = s.Write(answer(heard, bound))
		require.NoError(t, err)
		_ = s.Close()
		require.Error(t, <-done)
		_ = conn.CloseWithError(0, "")
		<-served.Context().Done()
	}
}

// FuzzGreeting says anything to a listener: only the one greeting finds the link, and only once.
func FuzzGreeting(f *testing.F) {
	secret, bound := &[32]byte{1, 2, 3}, []byte("bound")
	tag := lane.LinkTag(secret)
	right := append(tag[:], lane.Prove(secret, "dialler", 0, bound)...)
	f.Add(right)
	f.Add(tag[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		st := &pendingConn{secret: *secret}
		s := &PendingConns{has: map[[16]byte]*pendingConn{tag: st}}
		var greeting [greetingSize]byte
		copy(greeting[:], b)
		_, _ = ticketNumber(b)
		for range 2 {
			before := st.taken
			got := s.match(greeting, bound)
			require.Equal(t, !before && bytes.Equal(greeting[:], right), got == st)
		}
	})
}

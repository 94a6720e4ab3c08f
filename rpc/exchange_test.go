package rpc

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/transport"
)

// cutOff is a stream whose link is lost because the peer's process is gone: its socket ended.
type cutOff struct{ transport.Stream }

func (cutOff) Send(context.Context, *transport.Message) error { return nil }

func (cutOff) Recv(context.Context, transport.Place) (*transport.Message, error) {
	return nil, &transport.Error{Op: "link with", Err: transport.ErrPeerLost, Cause: io.EOF}
}

func TestALinkThatEndsIsNoStreamThatEnds(t *testing.T) {
	_, err := converse(t.Context(), cutOff{}, &transport.Message{}, nil)
	require.ErrorIs(t, err, transport.ErrPeerLost)
	require.NotErrorIs(t, err, ErrProtocol)
}

func TestOneOfManyIsTheFirstToPutAValueIntoTheJobsStore(t *testing.T) {
	ws := sim(t, 3, nil)
	took := 0
	for _, w := range ws {
		now, err := CompareSet(t.Context(), w, "which", nil, []byte(w.Name()))
		require.NoError(t, err)
		if string(now) == w.Name() {
			took++
		}
		require.Equal(t, "worker0", string(now))
	}
	require.Equal(t, 1, took)
	require.NoError(t, ws[2].Close())
	_, err := CompareSet(t.Context(), ws[2], "which", nil, []byte("x"))
	require.ErrorIs(t, err, ErrLeft)
}

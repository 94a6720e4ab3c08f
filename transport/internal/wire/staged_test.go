package wire_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

// short takes so many bytes and then refuses.
type short struct {
	bytes.Buffer
	left int
}

var errShort = errors.New("the writer is full")

func (s *short) Write(b []byte) (int, error) {
	if len(b) > s.left {
		return 0, errShort
	}
	s.left -= len(b)
	return s.Buffer.Write(b)
}

func TestATensorThatTheHostCannotSeeGoesInPiecesAsItIs(t *testing.T) {
	leak.Check(t)
	c := codec(t, wire.Limits{})
	r := rand.New(rand.NewPCG(3, 4))
	sim := device.NewSim(device.SimConfig{})
	for _, n := range []int{1, 1000, 1 << 18, 1<<18 + 1, 1 << 19, 3<<18 + 17, 1 << 20} { // 4 MiB in pieces of 1
		x := transporttest.Tensor(t, r, sim, device.Float32, n)
		want := make([]byte, x.Buf.Len())
		require.NoError(t, sim.Download(want, x.Buf, 0))
		whole := &short{left: 1 << 30}
		require.NoError(t, c.Encode(whole, &wire.Message{Tensors: []wire.Tensor{x}}))
		require.True(t, bytes.HasSuffix(whole.Bytes(), want), "%d numbers", n)

		for range 4 { // the writer may fail at any time, while a piece is on its way to the host
			err := c.Encode(&short{left: r.IntN(whole.Len())}, &wire.Message{Tensors: []wire.Tensor{x}})
			require.ErrorIs(t, err, errShort)
		}
		require.NoError(t, x.Buf.Release())
	}
}

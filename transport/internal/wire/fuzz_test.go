package wire_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport/internal/wire"
)

// FuzzDecode feeds arbitrary bytes: no panic, no memory beyond the limits, nothing kept on failure,
// and what is accepted is the one way to write that message.
func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		m := randomMessage(f, r)
		f.Add(plainFrame(f, m))
		m.Release()
	}
	f.Add(claim(65535, 1<<31, 1<<62))
	f.Add(claim(2, 3, 8, append([]byte("abc"), entry(1, 0, 0, 1<<40, 0)...)...))
	lim := wire.Limits{MaxHeader: 1 << 10, MaxTensors: 16, MaxTensorBytes: 1 << 12, MaxMessageBytes: 1 << 13}
	c := codec(f, lim)
	f.Fuzz(func(t *testing.T, frame []byte) {
		total := 0
		var made []*device.Buffer
		r := bytes.NewReader(frame)
		m, err := c.Decode(r, func(_ device.ID, n int) (*device.Buffer, error) {
			require.LessOrEqual(t, int64(n), lim.MaxTensorBytes)
			total += n
			b, err := device.Host().Alloc(n)
			made = append(made, b)
			return b, err
		})
		require.LessOrEqual(t, int64(total), lim.MaxMessageBytes)
		if err != nil {
			require.True(t, errors.Is(err, wire.ErrFrame) || err == io.EOF && len(frame) == 0, "%v", err)
			for _, b := range made {
				require.ErrorIs(t, b.Release(), device.ErrReleased)
			}
			return
		}
		var again bytes.Buffer
		require.NoError(t, c.Encode(&again, m))
		require.True(t, bytes.Equal(frame[:len(frame)-r.Len()], again.Bytes()))
		m.Release()
	})
}

// FuzzRoundTrip sends messages that a seed describes.
func FuzzRoundTrip(f *testing.F) {
	for seed := range uint64(10) {
		f.Add(seed)
	}
	c := codec(f, wire.Limits{})
	f.Fuzz(func(t *testing.T, seed uint64) {
		m := randomMessage(t, rand.New(rand.NewPCG(seed, 0)))
		defer m.Release()
		var b bytes.Buffer
		require.NoError(t, c.Encode(&b, m))
		require.True(t, bytes.Equal(plainFrame(t, m), b.Bytes()))
		got, err := c.Decode(&b, nil)
		require.NoError(t, err)
		defer got.Release()
		require.Equal(t, plainFrame(t, m), plainFrame(t, got))
	})
}

package link

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/transport/internal/wire"
)

// FuzzDescriptor reads arbitrary descriptors: what is taken is the one way to write it.
func FuzzDescriptor(f *testing.F) {
	d := descriptor{streams: 9, lanes: []laneWord{{code: 1, offer: []byte("offer")}, {code: 2, why: "because"}}}
	f.Add(d.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		d, err := readDescriptor(r)
		if err != nil {
			require.True(t, errors.Is(err, wire.ErrFrame) || err == io.EOF || err == io.ErrUnexpectedEOF)
			return
		}
		require.Equal(t, b[:len(b)-r.Len()], d.append(nil))
	})
}

package passgraph

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/require"
)

func FuzzPartsOfTheNetworkAreRefusedOrDrawn(f *testing.F) {
	s := random(rand.New(rand.NewPCG(9, 9)), 3, 12)
	seed, err := cbor.Marshal(s.workers)
	require.NoError(f, err)
	f.Add(seed)
	f.Add([]byte{0x81, 0xa0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		var parts []Worker
		if cbor.Unmarshal(raw, &parts) != nil {
			return
		}
		for i := range parts {
			if i%2 == 0 {
				parts[i].Bound()
			}
		}
		g, err := Merge(1, parts...)
		if err != nil {
			require.ErrorIs(t, err, ErrPart)
			return
		}
		var b bytes.Buffer
		require.NoError(t, g.WriteDOT(&b))
		requireDOT(t, g, b.String())
		b.Reset()
		if err := g.WriteSVG(&b); err != nil {
			require.ErrorIs(t, err, ErrTooLarge)
			return
		}
		requireXML(t, b.Bytes())
	})
}

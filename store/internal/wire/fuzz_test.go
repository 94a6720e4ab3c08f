package wire_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
	"github.com/weft-project/weft/store/internal/talktest"
	"github.com/weft-project/weft/store/internal/wire"
)

// pieces bends a reader as n says.
func pieces(n uint8, b []byte) io.Reader {
	if n%2 == 0 {
		return iotest.OneByteReader(bytes.NewReader(b))
	}
	return bytes.NewReader(b)
}

// boundedBy checks that f takes no more memory than a few times what it was given.
func boundedBy(t *testing.T, given int, f func()) {
	got := talktest.Allocated(f)
	require.LessOrEqual(t, got, uint64(4*wire.Promise+64*given), "for %d bytes", given)
}

// A command that was read and written again is the same, however it arrives, and costs memory by
// what arrived.
func FuzzCommand(f *testing.F) {
	for _, x := range talktest.Captured {
		f.Add(talktest.Unhex(f, x.Ask), uint8(0), uint8(0))
	}
	for n := range talktest.WireNames {
		r, w := rand.New(rand.NewPCG(1, uint64(n))), talktest.WireOf(uint8(n))
		var all []byte
		for _, o := range talktest.CommandsOf(w) {
			all, _ = w.AppendCommand(all, talktest.FillCommand(r, o))
		}
		f.Add(all, uint8(n), uint8(0))
		for _, b := range talktest.Lying(w) {
			f.Add(b, uint8(n), uint8(1))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, how, piece uint8) {
		w := talktest.WireOf(how)
		for _, limits := range []kv.Limits{talktest.Tight, kv.Defaulted(kv.Limits{})} {
			d := wire.NewDecoder(pieces(piece, data), w, limits)
			var again []byte
			boundedBy(t, len(data), func() {
				for {
					cmd, err := d.Command()
					if err != nil {
						break
					}
					again, err = w.AppendCommand(again, cmd)
					require.NoError(t, err)
				}
			})
			require.True(t, bytes.HasPrefix(data, again))
		}
	})
}

// Whatever a server answers, the client gets an answer that would be sent as it was, or an error.
func FuzzReply(f *testing.F) {
	for n := range talktest.WireNames {
		r, w := rand.New(rand.NewPCG(1, uint64(n))), talktest.WireOf(uint8(n))
		for _, o := range talktest.CommandsOf(w) {
			code, _ := w.Code(o)
			cmd := talktest.FillCommand(r, o)
			f.Add(w.AppendReply(nil, talktest.FillReply(r, cmd)), uint8(n), code, uint8(len(cmd.Keys)))
			f.Add(w.AppendReply(nil, state.Reply{Op: state.OpNews, Key: "k", Event: kv.Created}), uint8(n), code, uint8(0))
			f.Add(w.AppendReply(nil, state.Reply{Op: state.OpCancelWait}), uint8(n), code, uint8(0))
			f.Add(w.AppendReply(nil, state.Reply{Op: o, Err: kv.ErrFull}), uint8(n), code, uint8(0))
		}
		for _, b := range talktest.Lying(w) {
			f.Add(b[1:], uint8(n), b[0], uint8(1))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, how, code, keys uint8) {
		w := talktest.WireOf(how)
		o, err := w.Op(code)
		if err != nil || !w.Answered(o) {
			return
		}
		cmd := state.Command{Op: o, Keys: slices.Repeat([]string{"k"}, int(keys)%32)}
		d := wire.NewDecoder(pieces(code, data), w, talktest.Tight)
		var again []byte
		boundedBy(t, len(data), func() {
			for before := -1; len(again) > before; { // an answer may have no bytes
				before = len(again)
				if r, err := d.Reply(cmd); err == nil && r.Err == nil {
					again = w.AppendReply(again, r)
				}
			}
		})
		if o != state.OpPop { // of an empty queue it may have any length below 1
			require.True(t, bytes.HasPrefix(data, again), "% x", again)
		}
	})
}

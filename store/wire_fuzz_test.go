package store

import (
	"bytes"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
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
	got := allocated(f)
	require.LessOrEqual(t, got, uint64(4*promise+64*given), "for %d bytes", given)
}

// A command that was read and written again is the same, however it arrives, and costs memory by
// what arrived.
func FuzzCommand(f *testing.F) {
	for _, x := range captured {
		f.Add(unhex(f, x.ask), uint8(0), uint8(0))
	}
	for n := range wireNames {
		r, w := rand.New(rand.NewPCG(1, uint64(n))), wireOf(uint8(n))
		var all []byte
		for _, o := range commandsOf(w) {
			all, _ = w.appendCommand(all, fillCommand(r, o))
		}
		f.Add(all, uint8(n), uint8(0))
		for _, b := range lying(w) {
			f.Add(b, uint8(n), uint8(1))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, how, piece uint8) {
		w := wireOf(how)
		for _, limits := range []Limits{tight, Limits{}.withDefaults()} {
			d := newDecoder(pieces(piece, data), w, limits)
			var again []byte
			boundedBy(t, len(data), func() {
				for {
					cmd, err := d.command()
					if err != nil {
						break
					}
					again, err = w.appendCommand(again, cmd)
					require.NoError(t, err)
				}
			})
			require.True(t, bytes.HasPrefix(data, again))
		}
	})
}

// Whatever a server answers, the client gets an answer that would be sent as it was, or an error.
func FuzzReply(f *testing.F) {
	for n := range wireNames {
		r, w := rand.New(rand.NewPCG(1, uint64(n))), wireOf(uint8(n))
		for _, o := range commandsOf(w) {
			code, _ := w.code(o)
			cmd := fillCommand(r, o)
			f.Add(w.appendReply(nil, fillReply(r, cmd)), uint8(n), code, uint8(len(cmd.keys)))
			f.Add(w.appendReply(nil, reply{op: opNews, key: "k", event: Created}), uint8(n), code, uint8(0))
			f.Add(w.appendReply(nil, reply{op: opCancelWait}), uint8(n), code, uint8(0))
			f.Add(w.appendReply(nil, reply{op: o, err: ErrFull}), uint8(n), code, uint8(0))
		}
		for _, b := range lying(w) {
			f.Add(b[1:], uint8(n), b[0], uint8(1))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, how, code, keys uint8) {
		w := wireOf(how)
		o, err := w.op(code)
		if err != nil || !w.answered(o) {
			return
		}
		cmd := command{op: o, keys: slices.Repeat([]string{"k"}, int(keys)%32)}
		d := newDecoder(pieces(code, data), w, tight)
		var again []byte
		boundedBy(t, len(data), func() {
			for before := -1; len(again) > before; { // an answer may have no bytes
				before = len(again)
				if r, err := d.reply(cmd); err == nil && r.err == nil {
					again = w.appendReply(again, r)
				}
			}
		})
		if o != opPop { // of an empty queue it may have any length below 1
			require.True(t, bytes.HasPrefix(data, again), "% x", again)
		}
	})
}

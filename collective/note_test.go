package collective

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective/internal/ballot"
	"github.com/weft-project/weft/collective/internal/desk"
	"github.com/weft-project/weft/collective/internal/plan"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/transport"
)

func wire(n *note, inline ...part) []byte {
	var b bytes.Buffer
	n.inline = inline
	n.encode(&b)
	return b.Bytes()
}

func TestWhatTravelsInlineBeginsAtAMultipleOfEight(t *testing.T) {
	for scope := range 20 {
		n := note{Scope: strings.Repeat("s", scope), N: 7, Slots: []notePart{{Tensor: -1, N: 8}, {Tensor: -1, Off: 8, N: 4}}}
		b := wire(&n, part{mem: []byte("12345678")}, part{mem: []byte("abcd")})
		var got note
		require.NoError(t, got.decode(b, 2))
		require.Equal(t, "12345678abcd", string(got.body))
		require.Zero(t, (len(b)-len(got.body))%bodyAt)
		a, err := unpack(&got, nil)
		require.NoError(t, err)
		require.Equal(t, "abcd", string(a.parts[1].mem))
	}
}

// A note of a member may hold anything: it is refused, or its slots lie in what came with it.
func FuzzNote(f *testing.F) {
	for _, n := range []note{
		{Scope: "a", N: 1, Call: noteCall{Kind: plan.AllReduce, Count: 3, Line: "x.go:1"}, Slots: []notePart{{Tensor: -1, N: 4}}},
		{N: 2, Step: 3, Slots: []notePart{{Tensor: 0, Off: 64, N: 64}}},
		{N: 3, Failure: packFailure(&LostError{Rank: 1, Worker: "w", Cause: ErrLost})},
		{N: 4, Failure: packFailure(&LateError{By: "a", Missing: []string{"b"}})},
		{N: 5, Failure: packFailure(&MismatchError{Ranks: [2]int{0, 1}})},
		{N: 6, Ask: true},
		{Talk: &noteTalk{What: talkSends, Seq: 1, Tag: -2, Parcel: parcel{Dtype: device.Int32, Count: 1}}, Slots: []notePart{{Tensor: -1, N: 4}}},
		{Talk: &noteTalk{What: talkRefunds, Cost: 1 << 20}},
		{N: 7, Part: 1},
	} {
		f.Add(wire(&n, part{mem: []byte("1234")}), 128)
	}
	f.Fuzz(func(t *testing.T, b []byte, room int) {
		buf, err := device.Host().Alloc(min(max(room, 0), 1<<16))
		require.NoError(t, err)
		var n note
		if n.decode(b, 4) != nil {
			require.NoError(t, buf.Release())
			return
		}
		a, err := unpack(&n, []transport.Tensor{{Buf: buf}})
		if err == nil {
			for _, p := range a.parts {
				require.LessOrEqual(t, len(p.mem), max(buf.Len(), len(n.body)))
			}
			a.release()
		}
		require.Error(t, buf.Release(), "it was released")
		if n.Failure != nil {
			require.NotEmpty(t, n.Failure.failure(n.key(), Member{}).Error())
		}
	})
}

// A vote may hold anything, too: it is refused, or heard.
func FuzzVote(f *testing.F) {
	base := ballot.Roll{Generation: 3, Members: []ballot.Who{{Name: "a", Life: 1}, {Name: "b", Life: 2, Rank: 1}}}
	next := ballot.Roll{Generation: 4, Members: base.Members[:1]}
	for _, said := range []ballot.Said{{N: 1, Here: true, Lost: base.Members[1:]}, {N: 2, New: []ballot.Who{{Name: "c"}}, Next: &next, Ready: true}} {
		f.Add(encode(vote{Lineage: "x", Service: "y", Base: base, Host: "h", Said: said}))
	}
	f.Fuzz(func(_ *testing.T, raw []byte) {
		var n vote
		if n.decode(raw) != nil {
			return
		}
		for _, me := range []ballot.Who{base.Members[0], {Name: "c"}} {
			b := ballot.New(base, me, 0)
			b.Begin(nil, nil)
			b.Hear(base.Members[1], n.Said)
			b.Lose(base.Members[1])
			b.Remind()
			_, _, _ = b.Actions(), b.Awaited(), b.Out()
		}
	})
}

func TestFailuresTravel(t *testing.T) {
	for _, err := range []error{
		&LostError{Rank: 1, Worker: "w", Cause: ErrLost}, &LateError{By: "a", Missing: []string{"b", "c"}}, &MismatchError{Key: desk.Key{N: 1}, Ranks: [2]int{0, 1}}, ErrOp,
	} {
		b := wire(&note{N: 1, Failure: packFailure(err)})
		var n note
		require.NoError(t, n.decode(b, 2))
		got := n.Failure.failure(n.key(), Member{Worker: "m"})
		switch {
		case err == ErrOp: //nolint:errorlint // this very one
			require.ErrorIs(t, got, ErrAborted)
			require.ErrorContains(t, got, "m: no such operation")
		default:
			require.IsType(t, err, got)
			require.ErrorContains(t, got, map[bool]string{true: "rank 1, w: ", false: err.Error()}[errors.Is(err, ErrLost)])
		}
	}
}

// Pieces cover an array once, in order, and begin at lines of a cache.
func TestPiecesCoverAnArray(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		bytes, size := 4*r.IntN(1<<r.IntN(22)), 1+r.IntN(33)
		at := 0
		for i := range size {
			lo, hi := bounds(bytes, size, i)
			require.Equal(t, at, lo)
			require.True(t, lo%alignment == 0 || lo == bytes)
			if lo, hi := bounds(bytes, size, 0); hi-lo >= pagedFrom && hi < bytes { // they can be mapped where pages are no larger
				require.Zero(t, hi%pages)
			}
			require.LessOrEqual(t, lo, hi)
			at = hi
		}
		require.Equal(t, bytes, at)
		at = 0
		for i := range size {
			lo, hi := Share(bytes, size, i)
			require.Equal(t, at, lo)
			require.InDelta(t, bytes/size, hi-lo, 1)
			at = hi
		}
		require.Equal(t, bytes, at)
	}
}

func TestTextsOfAnyBytesTravel(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 2), "g\xff")
	c := Scope(t.Context(), "s\xfe")
	each(t, gs, func(r int) error {
		all, err := Agree(c, gs[r], "v\xfd")
		if err == nil && !slices.Equal(all, []string{"v\xfd", "v\xfd"}) {
			err = fmt.Errorf("%q", all)
		}
		return err
	})
	gs[0].Abandon(c, errors.New("a\xff"))
	require.ErrorIs(t, gs[1].Barrier(c), ErrAborted)
	require.NoError(t, gs[1].Err(), "the group lives on")
	gs[0].Abort(errors.New("b\xff"))
	<-gs[1].Done()
	require.ErrorIs(t, gs[1].Err(), ErrAborted)
	require.ErrorContains(t, gs[1].Err(), "b\xff")
}

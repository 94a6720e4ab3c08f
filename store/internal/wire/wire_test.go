package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
	"github.com/weft-project/weft/store/internal/talktest"
	"github.com/weft-project/weft/store/internal/wire"
)

func TestWhatIsWrittenIsReadTheSameInEveryDialectHoweverItArrives(t *testing.T) {
	for name, w := range talktest.Wires {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(7, 0))
			ops := talktest.CommandsOf(w)
			var ask, answer []byte
			var commands []state.Command
			var replies []state.Reply
			for range 300 {
				cmd := talktest.FillCommand(r, ops[r.IntN(len(ops))])
				var err error
				ask, err = w.AppendCommand(ask, cmd)
				require.NoError(t, err)
				commands = append(commands, cmd)
				if !w.Answered(cmd.Op) {
					continue
				}
				re := talktest.FillReply(r, cmd)
				answer = w.AppendReply(answer, re)
				replies = append(replies, re)
			}
			for how, bent := range map[string]func(io.Reader) io.Reader{"whole": func(r io.Reader) io.Reader { return r },
				"by byte": iotest.OneByteReader, "by halves": iotest.HalfReader, "with its end": iotest.DataErrReader} {
				d := wire.NewDecoder(bent(bytes.NewReader(ask)), w, talktest.Tight)
				back := wire.NewDecoder(bent(bytes.NewReader(answer)), w, talktest.Tight)
				n := 0
				for i, want := range commands {
					got, err := d.Command()
					require.NoError(t, err, how)
					require.Equal(t, normal(want), normal(got), "%s, command %d", how, i)
					if w.Answered(want.Op) {
						re, err := back.Reply(want)
						require.NoError(t, err, how)
						require.Equal(t, fmt.Sprint(replies[n]), fmt.Sprint(re), "%s, reply %d", how, n)
						n++
					}
				}
				_, err := d.Command()
				require.ErrorIs(t, err, io.EOF)
			}
		})
	}
}

// normal makes nil and empty the same.
func normal(cmd state.Command) string { return fmt.Sprintf("%v %q", cmd.Op, fmt.Sprint(cmd)) }

func TestACommandThatEndsEarlyIsAnUnexpectedEnd(t *testing.T) {
	for name, w := range talktest.Wires {
		r := rand.New(rand.NewPCG(1, 0))
		for _, o := range talktest.CommandsOf(w) {
			cmd := talktest.FillCommand(r, o)
			whole, err := w.AppendCommand(nil, cmd)
			require.NoError(t, err)
			for cut := 1; cut < len(whole); cut++ {
				_, err := wire.NewDecoder(bytes.NewReader(whole[:cut]), w, talktest.Tight).Command()
				require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%s %v cut at %d of %d", name, o, cut, len(whole))
			}
			answer := w.AppendReply(nil, talktest.FillReply(r, cmd))
			for cut := range answer {
				_, err := wire.NewDecoder(bytes.NewReader(answer[:cut]), w, talktest.Tight).Reply(cmd)
				require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%s answer to %v cut at %d of %d", name, o, cut, len(answer))
			}
		}
	}
}

func TestTheOpcodesAreThoseOfEachRelease(t *testing.T) {
	require.Len(t, talktest.CommandsOf(talktest.Wires["1.13"]), 9)
	for _, x := range []struct {
		op                 state.Op
		a, b, c, d, theOwn int // -1: none
	}{
		{state.OpValidate, -1, -1, -1, 0, 0}, {state.OpSet, 0, 0, 0, 1, 1}, {state.OpCompareSet, 1, 1, 1, 2, 2}, {state.OpGet, 2, 2, 2, 3, 3},
		{state.OpAdd, 3, 3, 3, 4, 4}, {state.OpCheck, 4, 4, 4, 5, 5}, {state.OpWait, 5, 5, 5, 6, 6}, {state.OpNumKeys, 6, 6, 6, 7, 7},
		{state.OpWatch, 7, 7, -1, -1, 0x42}, {state.OpDelete, 8, 8, 7, 8, 8}, {state.OpAppend, -1, 9, 8, 9, 9}, {state.OpMultiGet, -1, 10, 9, 10, 10},
		{state.OpMultiSet, -1, 11, 10, 11, 11}, {state.OpCancelWait, -1, 12, 11, 12, 12}, {state.OpPing, -1, -1, -1, 13, 13},
		{state.OpPush, -1, -1, -1, 14, 14}, {state.OpPop, -1, -1, -1, 15, 15}, {state.OpLen, -1, -1, -1, 16, 16}, {state.OpList, -1, -1, -1, 17, 17},
		{state.OpBarrier, -1, -1, -1, 18, 18}, {state.OpFetch, -1, -1, -1, -1, 0x40}, {state.OpReady, -1, -1, -1, -1, 0x41},
		{state.OpUnwatch, -1, -1, -1, -1, 0x43}, {state.OpArrive, -1, -1, -1, -1, 0x44}, {state.OpReach, -1, -1, -1, -1, 0x45}, {state.OpTake, -1, -1, -1, -1, -1}, {state.OpNews, -1, -1, -1, -1, -1},
	} {
		for name, want := range map[string]int{"1.13": x.a, "2.0": x.b, "2.1": x.c, "2.2": x.d, "own": x.theOwn} {
			w := talktest.Wires[name]
			code, err := w.Code(x.op)
			if want < 0 {
				require.ErrorIs(t, err, kv.ErrUnsupported, "%s %v", name, x.op)
				b, err := w.AppendCommand([]byte("x"), state.Command{Op: x.op, Key: "k"})
				require.ErrorIs(t, err, kv.ErrUnsupported)
				require.Equal(t, "x", string(b))
				continue
			}
			require.NoError(t, err, "%s %v", name, x.op)
			require.Equal(t, byte(want), code, "%s %v", name, x.op)
			o, err := w.Op(byte(want))
			require.NoError(t, err)
			require.Equal(t, x.op, o)
		}
	}
}

func TestTheEncoderWritesTheCapturedBytes(t *testing.T) {
	a, e := talktest.Wires["1.13"], talktest.Wires["2.2"]
	for _, x := range []struct {
		w           wire.Protocol
		cmd         state.Command
		ask, answer string
		reply       state.Reply
	}{
		{a, state.Command{Op: state.OpAdd, Key: "init/", Delta: 1}, "03 05 00*7 'init/' 01 00*7", "01 00*7", state.Reply{N: 1}},
		{a, state.Command{Op: state.OpSet, Key: "/k", Value: []byte("v")}, "00 02 00*7 '/k' 01 00*7 'v'", "", state.Reply{}},
		{a, state.Command{Op: state.OpWait, Keys: []string{"/k"}}, "05 01 00*7 02 00*7 '/k'", "00", state.Reply{}},
		{a, state.Command{Op: state.OpGet, Key: "/k"}, "02 02 00*7 '/k'", "01 00*7 'v'", state.Reply{Value: []byte("v")}},
		{a, state.Command{Op: state.OpAdd, Key: "/n", Delta: 5}, "03 02 00*7 '/n' 05 00*7", "05 00*7", state.Reply{N: 5}},
		{a, state.Command{Op: state.OpAdd, Key: "/n", Delta: -7}, "03 02 00*7 '/n' f9 ff*7", "fe ff*7", state.Reply{N: -2}},
		{a, state.Command{Op: state.OpNumKeys}, "06", "02 00*7", state.Reply{N: 2}},
		{a, state.Command{Op: state.OpDelete, Key: "/k"}, "08 02 00*7 '/k'", "01 00*7", state.Reply{N: 1}},
		{a, state.Command{Op: state.OpWatch, Key: "/w"}, "07 02 00*7 '/w'", "03", state.Reply{}},
		{e, state.Command{Op: state.OpValidate}, "00 ce f7 85 3c", "", state.Reply{}},
		{e, state.Command{Op: state.OpPing, Delta: 0x04030201}, "0d 01 02 03 04", "01 02 03 04", state.Reply{N: 0x04030201}},
	} {
		b, err := x.w.AppendCommand(nil, x.cmd)
		require.NoError(t, err)
		require.Equal(t, talktest.Unhex(t, x.ask), b)
		if !x.w.Answered(x.cmd.Op) {
			require.Empty(t, x.answer)
			continue
		}
		x.reply.Op = x.cmd.Op
		require.Equal(t, talktest.Unhex(t, x.answer), x.w.AppendReply(nil, x.reply))
	}
	news := state.Reply{Op: state.OpNews, Event: kv.Created, Key: "/wk", Value: []byte("a")}
	require.Equal(t, talktest.Unhex(t, "01 03 00*7 '/wk' 00*8 01 00*7 'a'"), a.AppendReply(nil, news))
}

func TestTheGreetingTellsTheDialectHoweverItArrives(t *testing.T) {
	for _, x := range []struct {
		first     string
		otherwise wire.Dialect
		want      wire.Dialect
		left      string
	}{
		{"00 ce f7 85 3c 07", wire.DialectAuto, wire.Dialect22, "07"},
		{"00 ce f7 85 3c 07", wire.Dialect20, wire.Dialect22, "07"},
		{"00 ce f7 85 3c 07", wire.Dialect22, wire.Dialect22, "07"},
		{"00 02 00*7 '/k' 00*8", wire.DialectAuto, wire.Dialect113, "00 02 00*7 '/k' 00*8"},
		{"00 02 00*7 '/k' 00*8", wire.Dialect21, wire.Dialect21, "00 02 00*7 '/k' 00*8"},
		{"06", wire.DialectAuto, wire.Dialect113, "06"},
		{"06", wire.Dialect20, wire.Dialect20, "06"},
	} {
		for _, bent := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader} {
			d := wire.NewDecoder(bent(bytes.NewReader(talktest.Unhex(t, x.first))), wire.Protocol{}, talktest.Tight)
			require.NoError(t, d.Greeting(x.otherwise))
			require.Equal(t, x.want, d.Dialect)
			left, err := io.ReadAll(d.Reader)
			require.NoError(t, err)
			require.Equal(t, talktest.Unhex(t, x.left), left)
		}
	}
	for _, wrong := range []string{"06", "00 ce f7 85 3d", "00 02 00*7"} {
		d := wire.NewDecoder(bytes.NewReader(talktest.Unhex(t, wrong)), wire.Protocol{}, talktest.Tight)
		require.ErrorIs(t, d.Greeting(wire.Dialect22), kv.ErrProtocol)
	}
	require.ErrorIs(t, wire.NewDecoder(bytes.NewReader(nil), wire.Protocol{}, talktest.Tight).Greeting(wire.DialectAuto), io.EOF)
	require.ErrorIs(t, wire.NewDecoder(bytes.NewReader([]byte{0, 0xce}), wire.Protocol{}, talktest.Tight).Greeting(wire.DialectAuto), io.ErrUnexpectedEOF)
}

func TestAValidateWithAnotherNumberIsRefused(t *testing.T) {
	_, err := wire.NewDecoder(bytes.NewReader(talktest.Unhex(t, "00 ce f7 85 3d")), talktest.Wires["2.2"], talktest.Tight).Command()
	require.ErrorIs(t, err, kv.ErrProtocol)
}

func TestErrorsKeepTheirIdentityInOwnMode(t *testing.T) {
	w := talktest.Wires["own"]
	for _, is := range []error{kv.ErrNotANumber, kv.ErrTooLarge, kv.ErrFull, kv.ErrNoKey, kv.ErrProtocol, kv.ErrUnsupported, kv.ErrBadKey, kv.ErrClosed} {
		b := w.AppendReply(nil, state.Reply{Op: state.OpAdd, Err: fmt.Errorf("%w: with a reason", is)})
		r, err := wire.NewDecoder(bytes.NewReader(b), w, talktest.Tight).Reply(state.Command{Op: state.OpAdd})
		require.NoError(t, err)
		require.ErrorIs(t, r.Err, is)
		require.EqualError(t, r.Err, is.Error()+": with a reason")
	}
	b := w.AppendReply(nil, state.Reply{Op: state.OpAdd, Err: errors.New(string(make([]byte, 5000)))})
	r, err := wire.NewDecoder(bytes.NewReader(b), w, talktest.Tight).Reply(state.Command{Op: state.OpAdd})
	require.NoError(t, err)
	require.Len(t, r.Err.Error(), wire.MaxTold)
	require.NoError(t, errors.Unwrap(r.Err))
}

func TestACancelledWaitIsToldFromOneThatEndedInTime(t *testing.T) {
	news := state.Reply{Op: state.OpNews, Event: kv.Updated, Key: "/k", Old: []byte("1"), Value: []byte("2")}
	for name, w := range talktest.Wires {
		if _, err := w.Code(state.OpCancelWait); err != nil {
			continue
		}
		waits := []state.Command{{Op: state.OpWait}, {Op: state.OpBarrier}}
		if w.Own {
			waits = append(waits, state.Command{Op: state.OpFetch, Keys: []string{"/k"}}, state.Command{Op: state.OpReady, Key: "/q"}, state.Command{Op: state.OpReach, Key: "/k"})
		}
		for _, wait := range waits {
			answer := state.Reply{Op: wait.Op, Value: []byte{1}, Values: [][]byte{{1, 2}}}
			late := w.AppendReply(w.AppendReply(nil, answer), state.Reply{Op: state.OpCancelWait})
			d := wire.NewDecoder(bytes.NewReader(late), w, talktest.Tight)
			r, err := d.Reply(wait)
			require.NoError(t, err, name)
			require.Equal(t, wait.Op, r.Op)
			r, err = d.Reply(state.Command{Op: state.OpCancelWait})
			require.NoError(t, err)
			require.Equal(t, state.OpCancelWait, r.Op)

			b := w.AppendReply(nil, state.Reply{Op: state.OpCancelWait})
			if w.Own {
				b = append(w.AppendReply(nil, news), b...)
			}
			d = wire.NewDecoder(bytes.NewReader(b), w, talktest.Tight)
			if w.Own {
				r, err = d.Reply(wait)
				require.NoError(t, err)
				require.Equal(t, news, r)
			}
			r, err = d.Reply(wait)
			require.NoError(t, err)
			require.Equal(t, state.OpCancelWait, r.Op, name)
		}
	}
}

func TestNewsComeBeforeAndAfterTheAnswerToAWatch(t *testing.T) {
	for name, w := range talktest.Wires {
		if _, err := w.Code(state.OpWatch); err != nil {
			continue
		}
		news := state.Reply{Op: state.OpNews, Event: kv.Deleted, Key: "/k", Old: []byte("1"), Value: []byte{}}
		b := w.AppendReply(w.AppendReply(w.AppendReply(nil, news), state.Reply{Op: state.OpWatch}), news)
		d := wire.NewDecoder(bytes.NewReader(b), w, talktest.Tight)
		r, err := d.Reply(state.Command{Op: state.OpWatch, Key: "/j"})
		require.NoError(t, err, name)
		require.Equal(t, news, r)
		r, err = d.Reply(state.Command{Op: state.OpWatch, Key: "/j"})
		require.NoError(t, err)
		require.Equal(t, state.Reply{Op: state.OpWatch}, r)
		r, err = d.Reply(state.Command{Op: state.OpNews})
		require.NoError(t, err)
		require.Equal(t, news, r)
		// What nobody asked for is no news.
		d = wire.NewDecoder(bytes.NewReader(w.AppendReply(nil, state.Reply{Op: state.OpWatch})), w, talktest.Tight)
		_, err = d.Reply(state.Command{Op: state.OpNews})
		require.ErrorIs(t, err, kv.ErrProtocol)
	}
}

func TestAnEncoderWithAWriterSendsTheSameBytesAndHoldsFew(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 0))
	for _, size := range []int{0, 10, wire.EncoderFull - 8, wire.EncoderFull, wire.EncoderFull + 1, 100000} {
		re := state.Reply{Op: state.OpFetch, Keys: []string{"x"}}
		for range 9 {
			re.Values = append(re.Values, talktest.RandomText(r, size), make([]byte, size))
		}
		var got bytes.Buffer
		e := wire.Encoder{To: &got}
		talktest.Wires["own"].WriteReply(&e, re)
		require.LessOrEqual(t, cap(e.Buf), 2*wire.EncoderFull)
		e.Flush()
		require.NoError(t, e.Err)
		require.True(t, bytes.Equal(talktest.Wires["own"].AppendReply(nil, re), got.Bytes()))
	}
	e := wire.Encoder{To: iotestWriter{}}
	talktest.Wires["own"].WriteReply(&e, state.Reply{Op: state.OpGet, Value: make([]byte, 1<<20)})
	require.ErrorIs(t, e.Err, io.ErrClosedPipe)
}

type iotestWriter struct{}

func (iotestWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestDialectsAreReadAsReleasesAndNothingElse(t *testing.T) {
	for text, want := range map[string]wire.Dialect{"": wire.DialectAuto, "auto": wire.DialectAuto, "1.13": wire.Dialect113, "2.0": wire.Dialect113, "2.1.dev": wire.Dialect20,
		"2.1": wire.Dialect21, "2.2": wire.Dialect22, "2.6": wire.Dialect22, "2.9": wire.Dialect22, "2.10": wire.Dialect22, "2.15": wire.Dialect22} {
		got, err := wire.ParseDialect(text)
		require.NoError(t, err)
		require.Equal(t, want, got, text)
		again, err := wire.ParseDialect(got.String())
		require.NoError(t, err)
		require.Equal(t, want, again)
	}
	for _, text := range []string{"1.12", "1.14", "2.16", "2.150", "2", "2.", "2.x", "2.-3", "2.+3", "2.03", "2.8.0", "3.0", "12.2", "2.1.2"} {
		_, err := wire.ParseDialect(text)
		require.ErrorContains(t, err, fmt.Sprintf("unknown dialect %q, expected auto or a release", text))
	}
	require.Error(t, wire.CheckDialect(wire.Dialect(9)))
	require.Equal(t, "Dialect(9)", wire.Dialect(9).String())
}

func TestEveryCommandHasAName(t *testing.T) {
	for o := range state.OpNews + 1 {
		require.NotContains(t, o.String(), "op(", strconv.Itoa(int(o)))
	}
	require.Equal(t, "op(100)", state.Op(100).String())
}

func TestAPromiseOfBytesCostsNoMemory(t *testing.T) {
	wide := kv.Defaulted(kv.Limits{})
	for name, w := range talktest.Wires {
		for _, b := range talktest.Lying(w) {
			for _, n := range []uint64{1 << 40, 8 << 20} {
				full := binary.LittleEndian.AppendUint64(b[:1:1], 2)
				full = binary.LittleEndian.AppendUint64(append(full, "/k"...), n)
				for _, b := range [][]byte{b, full} {
					got := talktest.Allocated(func() {
						_, _ = wire.NewDecoder(bytes.NewReader(b), w, wide).Command()
						for _, o := range talktest.CommandsOf(w) {
							_, _ = wire.NewDecoder(bytes.NewReader(b[1:]), w, wide).Reply(state.Command{Op: o, Keys: make([]string, 2)})
						}
					})
					require.Less(t, got, uint64(30*(wire.Promise+4*wire.ReadAhead)), "%s % x", name, b)
				}
			}
		}
	}
}

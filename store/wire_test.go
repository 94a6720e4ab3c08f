package store

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
)

func TestWhatIsWrittenIsReadTheSameInEveryDialectHoweverItArrives(t *testing.T) {
	for name, w := range wires {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(7, 0))
			ops := commandsOf(w)
			var ask, answer []byte
			var commands []command
			var replies []reply
			for range 300 {
				cmd := fillCommand(r, ops[r.IntN(len(ops))])
				var err error
				ask, err = w.appendCommand(ask, cmd)
				require.NoError(t, err)
				commands = append(commands, cmd)
				if !w.answered(cmd.op) {
					continue
				}
				re := fillReply(r, cmd)
				answer = w.appendReply(answer, re)
				replies = append(replies, re)
			}
			for how, bent := range map[string]func(io.Reader) io.Reader{"whole": func(r io.Reader) io.Reader { return r },
				"by byte": iotest.OneByteReader, "by halves": iotest.HalfReader, "with its end": iotest.DataErrReader} {
				d := newDecoder(bent(bytes.NewReader(ask)), w, tight)
				back := newDecoder(bent(bytes.NewReader(answer)), w, tight)
				n := 0
				for i, want := range commands {
					got, err := d.command()
					require.NoError(t, err, how)
					require.Equal(t, normal(want), normal(got), "%s, command %d", how, i)
					if w.answered(want.op) {
						re, err := back.reply(want)
						require.NoError(t, err, how)
						require.Equal(t, fmt.Sprint(replies[n]), fmt.Sprint(re), "%s, reply %d", how, n)
						n++
					}
				}
				_, err := d.command()
				require.ErrorIs(t, err, io.EOF)
			}
		})
	}
}

// normal makes nil and empty the same.
func normal(cmd command) string { return fmt.Sprintf("%v %q", cmd.op, fmt.Sprint(cmd)) }

func TestACommandThatEndsEarlyIsAnUnexpectedEnd(t *testing.T) {
	for name, w := range wires {
		r := rand.New(rand.NewPCG(1, 0))
		for _, o := range commandsOf(w) {
			cmd := fillCommand(r, o)
			whole, err := w.appendCommand(nil, cmd)
			require.NoError(t, err)
			for cut := 1; cut < len(whole); cut++ {
				_, err := newDecoder(bytes.NewReader(whole[:cut]), w, tight).command()
				require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%s %v cut at %d of %d", name, o, cut, len(whole))
			}
			answer := w.appendReply(nil, fillReply(r, cmd))
			for cut := range answer {
				_, err := newDecoder(bytes.NewReader(answer[:cut]), w, tight).reply(cmd)
				require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%s answer to %v cut at %d of %d", name, o, cut, len(answer))
			}
		}
	}
}

func TestTheOpcodesAreThoseOfEachRelease(t *testing.T) {
	require.Len(t, commandsOf(wires["1.13"]), 9)
	for _, x := range []struct {
		op                 op
		a, b, c, d, theOwn int // -1: none
	}{
		{opValidate, -1, -1, -1, 0, 0}, {opSet, 0, 0, 0, 1, 1}, {opCompareSet, 1, 1, 1, 2, 2}, {opGet, 2, 2, 2, 3, 3},
		{opAdd, 3, 3, 3, 4, 4}, {opCheck, 4, 4, 4, 5, 5}, {opWait, 5, 5, 5, 6, 6}, {opNumKeys, 6, 6, 6, 7, 7},
		{opWatch, 7, 7, -1, -1, 0x42}, {opDelete, 8, 8, 7, 8, 8}, {opAppend, -1, 9, 8, 9, 9}, {opMultiGet, -1, 10, 9, 10, 10},
		{opMultiSet, -1, 11, 10, 11, 11}, {opCancelWait, -1, 12, 11, 12, 12}, {opPing, -1, -1, -1, 13, 13},
		{opPush, -1, -1, -1, 14, 14}, {opPop, -1, -1, -1, 15, 15}, {opLen, -1, -1, -1, 16, 16}, {opList, -1, -1, -1, 17, 17},
		{opBarrier, -1, -1, -1, 18, 18}, {opFetch, -1, -1, -1, -1, 0x40}, {opReady, -1, -1, -1, -1, 0x41},
		{opUnwatch, -1, -1, -1, -1, 0x43}, {opArrive, -1, -1, -1, -1, 0x44}, {opReach, -1, -1, -1, -1, 0x45}, {opTake, -1, -1, -1, -1, -1}, {opNews, -1, -1, -1, -1, -1},
	} {
		for name, want := range map[string]int{"1.13": x.a, "2.0": x.b, "2.1": x.c, "2.2": x.d, "own": x.theOwn} {
			w := wires[name]
			code, err := w.code(x.op)
			if want < 0 {
				require.ErrorIs(t, err, ErrUnsupported, "%s %v", name, x.op)
				b, err := w.appendCommand([]byte("x"), command{op: x.op, key: "k"})
				require.ErrorIs(t, err, ErrUnsupported)
				require.Equal(t, "x", string(b))
				continue
			}
			require.NoError(t, err, "%s %v", name, x.op)
			require.Equal(t, byte(want), code, "%s %v", name, x.op)
			o, err := w.op(byte(want))
			require.NoError(t, err)
			require.Equal(t, x.op, o)
		}
	}
}

func TestTheEncoderWritesTheCapturedBytes(t *testing.T) {
	a, e := wires["1.13"], wires["2.2"]
	for _, x := range []struct {
		w           wire
		cmd         command
		ask, answer string
		reply       reply
	}{
		{a, command{op: opAdd, key: "init/", delta: 1}, "03 05 00*7 'init/' 01 00*7", "01 00*7", reply{n: 1}},
		{a, command{op: opSet, key: "/k", value: []byte("v")}, "00 02 00*7 '/k' 01 00*7 'v'", "", reply{}},
		{a, command{op: opWait, keys: []string{"/k"}}, "05 01 00*7 02 00*7 '/k'", "00", reply{}},
		{a, command{op: opGet, key: "/k"}, "02 02 00*7 '/k'", "01 00*7 'v'", reply{value: []byte("v")}},
		{a, command{op: opAdd, key: "/n", delta: 5}, "03 02 00*7 '/n' 05 00*7", "05 00*7", reply{n: 5}},
		{a, command{op: opAdd, key: "/n", delta: -7}, "03 02 00*7 '/n' f9 ff*7", "fe ff*7", reply{n: -2}},
		{a, command{op: opNumKeys}, "06", "02 00*7", reply{n: 2}},
		{a, command{op: opDelete, key: "/k"}, "08 02 00*7 '/k'", "01 00*7", reply{n: 1}},
		{a, command{op: opWatch, key: "/w"}, "07 02 00*7 '/w'", "03", reply{}},
		{e, command{op: opValidate}, "00 ce f7 85 3c", "", reply{}},
		{e, command{op: opPing, delta: 0x04030201}, "0d 01 02 03 04", "01 02 03 04", reply{n: 0x04030201}},
	} {
		b, err := x.w.appendCommand(nil, x.cmd)
		require.NoError(t, err)
		require.Equal(t, unhex(t, x.ask), b)
		if !x.w.answered(x.cmd.op) {
			require.Empty(t, x.answer)
			continue
		}
		x.reply.op = x.cmd.op
		require.Equal(t, unhex(t, x.answer), x.w.appendReply(nil, x.reply))
	}
	news := reply{op: opNews, event: Created, key: "/wk", value: []byte("a")}
	require.Equal(t, unhex(t, "01 03 00*7 '/wk' 00*8 01 00*7 'a'"), a.appendReply(nil, news))
}

func TestTheGreetingTellsTheDialectHoweverItArrives(t *testing.T) {
	for _, x := range []struct {
		first     string
		otherwise Dialect
		want      Dialect
		left      string
	}{
		{"00 ce f7 85 3c 07", DialectAuto, Dialect22, "07"},
		{"00 ce f7 85 3c 07", Dialect20, Dialect22, "07"},
		{"00 ce f7 85 3c 07", Dialect22, Dialect22, "07"},
		{"00 02 00*7 '/k' 00*8", DialectAuto, Dialect113, "00 02 00*7 '/k' 00*8"},
		{"00 02 00*7 '/k' 00*8", Dialect21, Dialect21, "00 02 00*7 '/k' 00*8"},
		{"06", DialectAuto, Dialect113, "06"},
		{"06", Dialect20, Dialect20, "06"},
	} {
		for _, bent := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader} {
			d := newDecoder(bent(bytes.NewReader(unhex(t, x.first))), wire{}, tight)
			require.NoError(t, d.greeting(x.otherwise))
			require.Equal(t, x.want, d.dialect)
			left, err := io.ReadAll(d.r)
			require.NoError(t, err)
			require.Equal(t, unhex(t, x.left), left)
		}
	}
	for _, wrong := range []string{"06", "00 ce f7 85 3d", "00 02 00*7"} {
		d := newDecoder(bytes.NewReader(unhex(t, wrong)), wire{}, tight)
		require.ErrorIs(t, d.greeting(Dialect22), ErrProtocol)
	}
	require.ErrorIs(t, newDecoder(bytes.NewReader(nil), wire{}, tight).greeting(DialectAuto), io.EOF)
	require.ErrorIs(t, newDecoder(bytes.NewReader([]byte{0, 0xce}), wire{}, tight).greeting(DialectAuto), io.ErrUnexpectedEOF)
}

func TestAValidateWithAnotherNumberIsRefused(t *testing.T) {
	_, err := newDecoder(bytes.NewReader(unhex(t, "00 ce f7 85 3d")), wires["2.2"], tight).command()
	require.ErrorIs(t, err, ErrProtocol)
}

func TestErrorsKeepTheirIdentityInOwnMode(t *testing.T) {
	w := wires["own"]
	for _, is := range []error{ErrNotANumber, ErrTooLarge, ErrFull, errNoKey, ErrProtocol, ErrUnsupported, ErrBadKey, ErrClosed} {
		b := w.appendReply(nil, reply{op: opAdd, err: fmt.Errorf("%w: with a reason", is)})
		r, err := newDecoder(bytes.NewReader(b), w, tight).reply(command{op: opAdd})
		require.NoError(t, err)
		require.ErrorIs(t, r.err, is)
		require.EqualError(t, r.err, is.Error()+": with a reason")
	}
	b := w.appendReply(nil, reply{op: opAdd, err: errors.New(string(make([]byte, 5000)))})
	r, err := newDecoder(bytes.NewReader(b), w, tight).reply(command{op: opAdd})
	require.NoError(t, err)
	require.Len(t, r.err.Error(), maxTold)
	require.NoError(t, errors.Unwrap(r.err))
}

func TestACancelledWaitIsToldFromOneThatEndedInTime(t *testing.T) {
	news := reply{op: opNews, event: Updated, key: "/k", old: []byte("1"), value: []byte("2")}
	for name, w := range wires {
		if _, err := w.code(opCancelWait); err != nil {
			continue
		}
		waits := []command{{op: opWait}, {op: opBarrier}}
		if w.own {
			waits = append(waits, command{op: opFetch, keys: []string{"/k"}}, command{op: opReady, key: "/q"}, command{op: opReach, key: "/k"})
		}
		for _, wait := range waits {
			answer := reply{op: wait.op, value: []byte{1}, values: [][]byte{{1, 2}}}
			late := w.appendReply(w.appendReply(nil, answer), reply{op: opCancelWait})
			d := newDecoder(bytes.NewReader(late), w, tight)
			r, err := d.reply(wait)
			require.NoError(t, err, name)
			require.Equal(t, wait.op, r.op)
			r, err = d.reply(command{op: opCancelWait})
			require.NoError(t, err)
			require.Equal(t, opCancelWait, r.op)

			b := w.appendReply(nil, reply{op: opCancelWait})
			if w.own {
				b = append(w.appendReply(nil, news), b...)
			}
			d = newDecoder(bytes.NewReader(b), w, tight)
			if w.own {
				r, err = d.reply(wait)
				require.NoError(t, err)
				require.Equal(t, news, r)
			}
			r, err = d.reply(wait)
			require.NoError(t, err)
			require.Equal(t, opCancelWait, r.op, name)
		}
	}
}

func TestNewsComeBeforeAndAfterTheAnswerToAWatch(t *testing.T) {
	for name, w := range wires {
		if _, err := w.code(opWatch); err != nil {
			continue
		}
		news := reply{op: opNews, event: Deleted, key: "/k", old: []byte("1"), value: []byte{}}
		b := w.appendReply(w.appendReply(w.appendReply(nil, news), reply{op: opWatch}), news)
		d := newDecoder(bytes.NewReader(b), w, tight)
		r, err := d.reply(command{op: opWatch, key: "/j"})
		require.NoError(t, err, name)
		require.Equal(t, news, r)
		r, err = d.reply(command{op: opWatch, key: "/j"})
		require.NoError(t, err)
		require.Equal(t, reply{op: opWatch}, r)
		r, err = d.reply(command{op: opNews})
		require.NoError(t, err)
		require.Equal(t, news, r)
		// What nobody asked for is no news.
		d = newDecoder(bytes.NewReader(w.appendReply(nil, reply{op: opWatch})), w, tight)
		_, err = d.reply(command{op: opNews})
		require.ErrorIs(t, err, ErrProtocol)
	}
}

func TestAnEncoderWithAWriterSendsTheSameBytesAndHoldsFew(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 0))
	for _, size := range []int{0, 10, encoderFull - 8, encoderFull, encoderFull + 1, 100000} {
		re := reply{op: opFetch, keys: []string{"x"}}
		for range 9 {
			re.values = append(re.values, randomText(r, size), make([]byte, size))
		}
		var got bytes.Buffer
		e := encoder{to: &got}
		wires["own"].writeReply(&e, re)
		require.LessOrEqual(t, cap(e.b), 2*encoderFull)
		e.flush()
		require.NoError(t, e.err)
		require.True(t, bytes.Equal(wires["own"].appendReply(nil, re), got.Bytes()))
	}
	e := encoder{to: iotestWriter{}}
	wires["own"].writeReply(&e, reply{op: opGet, value: make([]byte, 1<<20)})
	require.ErrorIs(t, e.err, io.ErrClosedPipe)
}

type iotestWriter struct{}

func (iotestWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestDialectsAreReadAsReleasesAndNothingElse(t *testing.T) {
	for text, want := range map[string]Dialect{"": DialectAuto, "auto": DialectAuto, "1.13": Dialect113, "2.0": Dialect113, "2.1.dev": Dialect20,
		"2.1": Dialect21, "2.2": Dialect22, "2.6": Dialect22, "2.9": Dialect22, "2.10": Dialect22, "2.15": Dialect22} {
		got, err := ParseDialect(text)
		require.NoError(t, err)
		require.Equal(t, want, got, text)
		again, err := ParseDialect(got.String())
		require.NoError(t, err)
		require.Equal(t, want, again)
	}
	for _, text := range []string{"1.12", "1.14", "2", "2.", "2.x", "2.-3", "2.+3", "2.03", "2.8.0", "3.0", "12.2", "2.1.2"} {
		_, err := ParseDialect(text)
		require.ErrorContains(t, err, fmt.Sprintf("unknown dialect %q, expected auto or a release", text))
	}
	require.Error(t, Dialect(9).validate())
	require.Equal(t, "Dialect(9)", Dialect(9).String())
}

func TestEveryCommandHasAName(t *testing.T) {
	for o := range opNews + 1 {
		require.NotContains(t, o.String(), "op(", strconv.Itoa(int(o)))
	}
	require.Equal(t, "op(100)", op(100).String())
}

func TestAPromiseOfBytesCostsNoMemory(t *testing.T) {
	wide := Limits{}.withDefaults()
	for name, w := range wires {
		for _, b := range lying(w) {
			for _, n := range []uint64{1 << 40, 8 << 20} {
				full := binary.LittleEndian.AppendUint64(b[:1:1], 2)
				full = binary.LittleEndian.AppendUint64(append(full, "/k"...), n)
				for _, b := range [][]byte{b, full} {
					got := allocated(func() {
						_, _ = newDecoder(bytes.NewReader(b), w, wide).command()
						for _, o := range commandsOf(w) {
							_, _ = newDecoder(bytes.NewReader(b[1:]), w, wide).reply(command{op: o, keys: make([]string, 2)})
						}
					})
					require.Less(t, got, uint64(30*(promise+4*readAhead)), "%s % x", name, b)
				}
			}
		}
	}
}

package server

import (
	"encoding/binary"
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
	"github.com/weft-project/weft/store/internal/talktest"
	"github.com/weft-project/weft/store/internal/wire"
)

// ownTalk is a conversation in Weft's own mode.
var ownTalk = talk{
	{Who: "a", Ask: talktest.OwnMode, Answer: "00"},
	{Who: "a", Ask: talktest.SetK + talktest.One + "'v'", Answer: "00"},
	{Who: "a", Ask: "03 " + talktest.Two + "'/k'", Answer: "00 " + talktest.One + "'v'"},
	{Who: "a", Ask: "09 " + talktest.Two + "'/k' " + talktest.One + "'w'", Answer: "00"},
	{Who: "a", Ask: "0b " + talktest.One + talktest.Two + "'/m' " + talktest.One + "'1'", Answer: "00"},
	{Who: "a", Ask: "40 " + talktest.Two + talktest.Two + "'/k' " + talktest.Two + "'/m'", Answer: "00 " + talktest.Two + "'vw' " + talktest.One + "'1'"},
	{Who: "a", Ask: "40 00*8", Answer: "00"},
	{Who: "a", Ask: "0e " + talktest.Two + "'/q' " + talktest.One + "'1'", Answer: "00"},
	{Who: "a", Ask: "41 " + talktest.Two + "'/q'", Answer: "00 00"},
	{Who: "a", Ask: "0f " + talktest.Two + "'/q'", Answer: "00 " + talktest.One + talktest.One + "'1'"},
	{Who: "a", Ask: "44 " + talktest.Two + "'/b' " + talktest.Two, Answer: "00 " + talktest.One},
	{Who: "a", Ask: "45 " + talktest.Two + "'/b' " + talktest.One, Answer: "00 00"},
	{Who: "a", Ask: "06 " + talktest.One + talktest.Two + "'/k'", Answer: "00 00"},
	{Who: "a", Ask: "0d 01 02 03 04", Answer: "00 01 02 03 04"},
	{Who: "a", Ask: "05 " + talktest.One + "06 00*7 'weft/1'", Answer: "00 01"}, // it is a key as any other now
	{Who: "a", Ask: "42 " + talktest.Two + "'/k'", Answer: "00"},
	{Who: "a", Ask: talktest.SetK + talktest.One + "'x'", Answer: "00 ff 00 " + talktest.Two + "'/k' " + talktest.Two + "'vw' " + talktest.One + "'x'"},
	{Who: "a", Ask: talktest.DelK, Answer: "00 " + talktest.One + "ff 02 " + talktest.Two + "'/k' " + talktest.One + "'x' 00*8"},
	{Who: "a", Ask: "43 " + talktest.Two + "'/k'", Answer: "00"},
	{Who: "a", Ask: talktest.SetK + talktest.One + "'y'", Answer: "00"},
	{Who: "a", Ask: "0c", Answer: "fe"},
}

func TestOwnModeIsSpoken(t *testing.T) { ownTalk.run(t, Config{}) }

// textBytes is text that unhex reads back, blanks and all.
func textBytes(s string) string { return fmt.Sprintf("%x", s) }

// told is an error in own mode.
func told(status byte, msg string) string {
	n := binary.LittleEndian.AppendUint64(nil, uint64(len(msg)))
	return fmt.Sprintf("%02x %x ", status, n) + textBytes(msg)
}

func TestInOwnModeACommandThatFailsIsToldWhyAndTheConnectionGoesOn(t *testing.T) {
	talk{
		{Who: "a", Ask: talktest.OwnMode, Answer: "00"},
		{Who: "a", Ask: talktest.SetK + talktest.One + "'x'", Answer: "00"},
		{Who: "a", Ask: "04 " + talktest.Two + "'/k' " + talktest.One, Answer: told(2, `not a number: "x", expected a decimal number between -9223372036854775808 and 9223372036854775807`)},
		{Who: "a", Ask: "12 " + talktest.Two + "'/k' " + talktest.One, Answer: told(2, `not a number: "x", expected a decimal number between -9223372036854775808 and 9223372036854775807`)},
		{Who: "a", Ask: "09 " + talktest.Two + "'/k' 10 00*7 '0123456789abcdef'", Answer: told(3, "too large: the value would have 17 bytes, at most 16 allowed")},
		{Who: "a", Ask: "03 " + talktest.Two + "'/j'", Answer: told(5, "no such key")},
		{Who: "a", Ask: "03 " + talktest.Two + "'/k'", Answer: "00 " + talktest.One + "'x'"},
	}.run(t, Config{Limits: kv.Limits{Value: 16}})
}

func TestInOwnModeAFullStoreSaysSo(t *testing.T) {
	talk{
		{Who: "a", Ask: talktest.OwnMode, Answer: "00"},
		{Who: "a", Ask: talktest.SetK + "08 00*7 '12345678'", Answer: "00"},
		{Who: "a", Ask: "01 " + talktest.Two + "'/j' " + talktest.One + "'x'", Answer: told(4, "store is full: it holds 74 bytes and is asked for 67 more, at most 100 allowed")},
		{Who: "a", Ask: talktest.SetK + talktest.One + "'x'", Answer: "00"},
	}.run(t, Config{Limits: kv.Limits{Memory: 100}})
}

func TestInOwnModeWhatCannotBeUnderstoodIsToldBeforeTheEnd(t *testing.T) {
	s := startServer(t, Config{Limits: kv.Limits{Key: 16, Value: 64}})
	for bytes, msg := range map[string]string{
		talktest.SetK + "41 00*7": told(3, "too large: a value of 65 bytes, at most 64 allowed"),
		"46":                      told(6, "protocol violated: unknown opcode 70 in the dialect of PyTorch 2.2"),
		"08 11 00*7":              told(3, "too large: a key of 17 bytes, at most 16 allowed"),
	} {
		r := connectRaw(t, s)
		r.Send(talktest.OwnMode + " " + bytes)
		r.Expect("00 " + msg)
		r.ExpectClosed()
	}
}

func TestInOwnModeWhatWaitsCanBeCancelledAndIsNotMistaken(t *testing.T) {
	fetch, ready, reach := "40 "+talktest.Two+talktest.Two+"'/k' "+talktest.Two+"'/j'", "41 "+talktest.Two+"'/q'", "45 "+talktest.Two+"'/b' "+talktest.One
	talk{
		{Who: "a", Ask: talktest.OwnMode, Answer: "00"}, {Who: "b", Ask: talktest.OwnMode, Answer: "00"},
		{Who: "a", Ask: fetch, Answer: ""}, {Who: "b", Ask: talktest.SetK + "00*8", Answer: "00"}, {Who: "a", Ask: "0c", Answer: "fe"},
		{Who: "b", Ask: "01 " + talktest.Two + "'/j' " + talktest.One + "01", Answer: "00"},
		{Who: "a", Ask: "07", Answer: "00 " + talktest.Two},
		{Who: "a", Ask: ready, Answer: ""}, {Who: "a", Ask: "0c", Answer: "fe"},
		{Who: "a", Ask: reach, Answer: ""}, {Who: "a", Ask: "0c", Answer: "fe"},
		{Who: "b", Ask: "0e " + talktest.Two + "'/q' " + talktest.One + "'1'", Answer: "00"},
		{Who: "b", Ask: "10 " + talktest.Two + "'/q'", Answer: "00 " + talktest.One}, // nobody took it
		{Who: "a", Ask: ready, Answer: "00 00"}, {Who: "a", Ask: "0f " + talktest.Two + "'/q'", Answer: "00 " + talktest.One + talktest.One + "'1'"},
		{Who: "a", Ask: ready, Answer: ""},
		{Who: "b", Ask: "0e " + talktest.Two + "'/q' " + talktest.One + "01", Answer: "00"},
		{Who: "a", Ask: "0c", Answer: "00 00 fe"}, // it came first
		{Who: "a", Ask: reach, Answer: ""}, {Who: "b", Ask: "44 " + talktest.Two + "'/b' " + talktest.One, Answer: "00 " + talktest.One}, {Who: "a", Ask: "", Answer: "00 00"},
		{Who: "b", Ask: talktest.DelK, Answer: "00 " + talktest.One}, {Who: "a", Ask: fetch, Answer: ""}, {Who: "b", Ask: talktest.SetK + talktest.One + "'v'", Answer: "00"},
		{Who: "a", Ask: "", Answer: "00 " + talktest.One + "'v' " + talktest.One + "01"},
	}.run(t, Config{})
}

func TestAValueTooLargeToBeWrittenAtOnceWakesItsWaiterWhole(t *testing.T) {
	s := startServer(t, Config{})
	w, r := connectRaw(t, s), connectRaw(t, s)
	require.NoError(t, w.NC.(*net.TCPConn).SetReadBuffer(4096))
	for _, size := range []int{wire.EncoderFull - 9, wire.EncoderFull, 1 << 20, 8 << 20} {
		w.Send(talktest.OwnMode + " 40 " + talktest.One + talktest.Two + "'/k'")
		w.Expect("00")
		r.Send(talktest.OwnMode)
		r.Expect("00")
		value := make([]byte, size)
		for i := range value {
			value[i] = byte(i * i >> 8)
		}
		_, err := r.NC.Write(append(binary.LittleEndian.AppendUint64(talktest.Unhex(t, "01 02 00*7 '/k'"), uint64(size)), value...))
		require.NoError(t, err)
		r.Expect("00")
		d := wire.NewDecoder(w.NC, talktest.Wires["own"], kv.Defaulted(kv.Limits{}))
		got, err := d.Reply(state.Command{Op: state.OpFetch, Keys: []string{"/k"}})
		require.NoError(t, err)
		require.Equal(t, value, got.Values[0])
		r.Send(talktest.DelK)
		r.Expect("00 " + talktest.One)
		w.NC.Close()
		r.NC.Close()
		w, r = connectRaw(t, s), connectRaw(t, s)
	}
}

func TestWhoReadsSlowlyGetsAllNewsInOrder(t *testing.T) {
	s := startServer(t, Config{})
	w, r := connectRaw(t, s), connectRaw(t, s)
	w.Send(talktest.OwnMode + " 42 02 00*7 '/k'")
	w.Expect("00 00")
	const changes, size = 200, 50_000 // more than the sockets take
	value := make([]byte, size)
	for i := range changes {
		value[0] = byte(i)
		b, err := talktest.Wires["1.13"].AppendCommand(nil, state.Command{Op: state.OpSet, Key: "/k", Value: value})
		require.NoError(t, err)
		_, err = r.NC.Write(b)
		require.NoError(t, err)
	}
	r.Alive()
	d := wire.NewDecoder(w.NC, talktest.Wires["own"], kv.Defaulted(kv.Limits{}))
	for i := range changes {
		got, err := d.Reply(state.Command{Op: state.OpNews})
		require.NoError(t, err)
		require.Equal(t, byte(i), got.Value[0])
		require.Len(t, got.Value, size)
	}
}

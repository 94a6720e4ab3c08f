package store

import (
	"encoding/binary"
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// ownTalk is a conversation in Weft's own mode.
var ownTalk = talk{
	{"a", ownMode, "00"},
	{"a", setK + one + "'v'", "00"},
	{"a", "03 " + two + "'/k'", "00 " + one + "'v'"},
	{"a", "09 " + two + "'/k' " + one + "'w'", "00"},
	{"a", "0b " + one + two + "'/m' " + one + "'1'", "00"},
	{"a", "40 " + two + two + "'/k' " + two + "'/m'", "00 " + two + "'vw' " + one + "'1'"},
	{"a", "40 00*8", "00"},
	{"a", "0e " + two + "'/q' " + one + "'1'", "00"},
	{"a", "41 " + two + "'/q'", "00 00"},
	{"a", "0f " + two + "'/q'", "00 " + one + one + "'1'"},
	{"a", "44 " + two + "'/b' " + two, "00 " + one},
	{"a", "45 " + two + "'/b' " + one, "00 00"},
	{"a", "06 " + one + two + "'/k'", "00 00"},
	{"a", "0d 01 02 03 04", "00 01 02 03 04"},
	{"a", "05 " + one + "06 00*7 'weft/1'", "00 01"}, // it is a key as any other now
	{"a", "42 " + two + "'/k'", "00"},
	{"a", setK + one + "'x'", "00 ff 00 " + two + "'/k' " + two + "'vw' " + one + "'x'"},
	{"a", delK, "00 " + one + "ff 02 " + two + "'/k' " + one + "'x' 00*8"},
	{"a", "43 " + two + "'/k'", "00"},
	{"a", setK + one + "'y'", "00"},
	{"a", "0c", "fe"},
}

func TestOwnModeIsSpoken(t *testing.T) { ownTalk.run(t, ServerConfig{}) }

// textBytes is text that unhex reads back, blanks and all.
func textBytes(s string) string { return fmt.Sprintf("%x", s) }

// told is an error in own mode.
func told(status byte, msg string) string {
	n := binary.LittleEndian.AppendUint64(nil, uint64(len(msg)))
	return fmt.Sprintf("%02x %x ", status, n) + textBytes(msg)
}

func TestInOwnModeACommandThatFailsIsToldWhyAndTheConnectionGoesOn(t *testing.T) {
	talk{
		{"a", ownMode, "00"},
		{"a", setK + one + "'x'", "00"},
		{"a", "04 " + two + "'/k' " + one, told(2, `not a number: "x", expected a decimal number between -9223372036854775808 and 9223372036854775807`)},
		{"a", "12 " + two + "'/k' " + one, told(2, `not a number: "x", expected a decimal number between -9223372036854775808 and 9223372036854775807`)},
		{"a", "09 " + two + "'/k' 10 00*7 '0123456789abcdef'", told(3, "too large: the value would have 17 bytes, at most 16 allowed")},
		{"a", "03 " + two + "'/j'", told(5, "no such key")},
		{"a", "03 " + two + "'/k'", "00 " + one + "'x'"},
	}.run(t, ServerConfig{Limits: Limits{Value: 16}})
}

func TestInOwnModeAFullStoreSaysSo(t *testing.T) {
	talk{
		{"a", ownMode, "00"},
		{"a", setK + "08 00*7 '12345678'", "00"},
		{"a", "01 " + two + "'/j' " + one + "'x'", told(4, "store is full: it holds 74 bytes and is asked for 67 more, at most 100 allowed")},
		{"a", setK + one + "'x'", "00"},
	}.run(t, ServerConfig{Limits: Limits{Memory: 100}})
}

func TestInOwnModeWhatCannotBeUnderstoodIsToldBeforeTheEnd(t *testing.T) {
	s := startServer(t, ServerConfig{Limits: Limits{Key: 16, Value: 64}})
	for bytes, msg := range map[string]string{
		setK + "41 00*7": told(3, "too large: a value of 65 bytes, at most 64 allowed"),
		"46":             told(6, "protocol violated: unknown opcode 70 in the dialect of PyTorch 2.2"),
		"08 11 00*7":     told(3, "too large: a key of 17 bytes, at most 16 allowed"),
	} {
		r := connectRaw(t, s)
		r.send(ownMode + " " + bytes)
		r.expect("00 " + msg)
		r.expectClosed()
	}
}

func TestInOwnModeWhatWaitsCanBeCancelledAndIsNotMistaken(t *testing.T) {
	fetch, ready, reach := "40 "+two+two+"'/k' "+two+"'/j'", "41 "+two+"'/q'", "45 "+two+"'/b' "+one
	talk{
		{"a", ownMode, "00"}, {"b", ownMode, "00"},
		{"a", fetch, ""}, {"b", setK + "00*8", "00"}, {"a", "0c", "fe"},
		{"b", "01 " + two + "'/j' " + one + "01", "00"},
		{"a", "07", "00 " + two},
		{"a", ready, ""}, {"a", "0c", "fe"},
		{"a", reach, ""}, {"a", "0c", "fe"},
		{"b", "0e " + two + "'/q' " + one + "'1'", "00"},
		{"b", "10 " + two + "'/q'", "00 " + one}, // nobody took it
		{"a", ready, "00 00"}, {"a", "0f " + two + "'/q'", "00 " + one + one + "'1'"},
		{"a", ready, ""},
		{"b", "0e " + two + "'/q' " + one + "01", "00"},
		{"a", "0c", "00 00 fe"}, // it came first
		{"a", reach, ""}, {"b", "44 " + two + "'/b' " + one, "00 " + one}, {"a", "", "00 00"},
		{"b", delK, "00 " + one}, {"a", fetch, ""}, {"b", setK + one + "'v'", "00"},
		{"a", "", "00 " + one + "'v' " + one + "01"},
	}.run(t, ServerConfig{})
}

func TestAValueTooLargeToBeWrittenAtOnceWakesItsWaiterWhole(t *testing.T) {
	s := startServer(t, ServerConfig{})
	w, r := connectRaw(t, s), connectRaw(t, s)
	require.NoError(t, w.nc.(*net.TCPConn).SetReadBuffer(4096))
	for _, size := range []int{encoderFull - 9, encoderFull, 1 << 20, 8 << 20} {
		w.send(ownMode + " 40 " + one + two + "'/k'")
		w.expect("00")
		r.send(ownMode)
		r.expect("00")
		value := make([]byte, size)
		for i := range value {
			value[i] = byte(i * i >> 8)
		}
		_, err := r.nc.Write(append(binary.LittleEndian.AppendUint64(unhex(t, "01 02 00*7 '/k'"), uint64(size)), value...))
		require.NoError(t, err)
		r.expect("00")
		d := newDecoder(w.nc, wires["own"], Limits{}.withDefaults())
		got, err := d.reply(command{op: opFetch, keys: []string{"/k"}})
		require.NoError(t, err)
		require.Equal(t, value, got.values[0])
		r.send(delK)
		r.expect("00 " + one)
		w.nc.Close()
		r.nc.Close()
		w, r = connectRaw(t, s), connectRaw(t, s)
	}
}

func TestWhoReadsSlowlyGetsAllNewsInOrder(t *testing.T) {
	s := startServer(t, ServerConfig{})
	w, r := connectRaw(t, s), connectRaw(t, s)
	w.send(ownMode + " 42 02 00*7 '/k'")
	w.expect("00 00")
	const changes, size = 200, 50_000 // more than the sockets take
	value := make([]byte, size)
	for i := range changes {
		value[0] = byte(i)
		b, err := wires["1.13"].appendCommand(nil, command{op: opSet, key: "/k", value: value})
		require.NoError(t, err)
		_, err = r.nc.Write(b)
		require.NoError(t, err)
	}
	r.alive()
	d := newDecoder(w.nc, wires["own"], Limits{}.withDefaults())
	for i := range changes {
		got, err := d.reply(command{op: opNews})
		require.NoError(t, err)
		require.Equal(t, byte(i), got.value[0])
		require.Len(t, got.value, size)
	}
}

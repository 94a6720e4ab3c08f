package talktest

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Beginnings of conversations, for [Unhex].
const (
	Hello   = "00 ce f7 85 3c"                        // VALIDATE
	OwnMode = Hello + "  05 01 00*7 06 00*7 'weft/1'" // answered by 00
	One     = "01 00*7 "                              // a count, a length or a number
	Two     = "02 00*7 "                              // likewise
	SetK    = "01 " + Two + "'/k' "                   // in the dialect of 2.2
	DelK    = "08 " + Two + "'/k'"                    // likewise
)

// Line is one of a conversation with a server: who says what, and what the answer is.
type Line struct{ Who, Ask, Answer string }

// Unhex reads "05 00*7 'init/'": bytes in hexadecimal, repetitions, and text in quotes.
func Unhex(t testing.TB, s string) []byte {
	t.Helper()
	var out []byte
	for _, f := range strings.Fields(s) {
		if text, ok := strings.CutPrefix(f, "'"); ok {
			out = append(out, strings.TrimSuffix(text, "'")...)
			continue
		}
		f, times, _ := strings.Cut(f, "*")
		b, err := hex.DecodeString(f)
		require.NoError(t, err)
		n := 1
		if times != "" {
			n = int(times[0] - '0')
		}
		out = append(out, bytes.Repeat(b, n)...)
	}
	return out
}

// Captured is a conversation of PyTorch 1.13.1: what its client sent and what its server answered.
var Captured = []struct{ What, Ask, Answer string }{
	{"connect with world size 2", "03 05 00*7 'init/' 01 00*7", "01 00*7"},
	{"set k v", "00 02 00*7 '/k' 01 00*7 'v'", ""},
	{"get k: wait", "05 01 00*7 02 00*7 '/k'", "00"},
	{"get k", "02 02 00*7 '/k'", "01 00*7 'v'"},
	{"add n 5", "03 02 00*7 '/n' 05 00*7", "05 00*7"},
	{"add n -7", "03 02 00*7 '/n' f9 ff*7", "fe ff*7"},
	{"get n", "02 02 00*7 '/n'", "02 00*7 '-2'"},
	{"check k", "04 01 00*7 02 00*7 '/k'", "00"},
	{"check x", "04 01 00*7 02 00*7 '/x'", "01"},
	{"check nothing", "04 00*8", "00"},
	{"wait for nothing", "05 00*8", "00"},
	{"compare_set c, missing, wrong", "01 02 00*7 '/c' 01 00*7 'x' 01 00*7 'y'", "01 00*7 'x'"},
	{"compare_set c, missing, nothing", "01 02 00*7 '/c' 00*8 01 00*7 'y'", "01 00*7 'y'"},
	{"num_keys", "06", "04 00*7"},
	{"delete k", "08 02 00*7 '/k'", "01 00*7"},
	{"delete k again", "08 02 00*7 '/k'", "00*8"},
}

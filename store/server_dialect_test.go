package store

import (
	"io"
	"net"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// talk is a conversation with one server: who says what, and what the answer is.
type talk []line

// run has it on pipes, where nothing is lost and nobody waits for a clock.
func (x talk) run(t *testing.T, cfg ServerConfig) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(cfg)
		defer s.Close()
		clients := map[string]raw{}
		for i, line := range x {
			r, known := clients[line.who]
			if !known {
				near, far := net.Pipe()
				r = raw{t, near}
				clients[line.who] = r
				s.attach(far)
			}
			if line.ask != "" {
				r.send(line.ask)
			}
			if line.answer == "closed" {
				r.expectClosed()
				continue
			}
			t.Logf("%d %s: %s", i, line.who, line.ask)
			r.expect(line.answer)
			synctest.Wait()
		}
	})
}

// captured26 is a conversation in the dialect of PyTorch 2.2 and later.
var captured26 = talk{
	{"a", hello, ""},
	{"a", "0d 01 02 03 04", "01 02 03 04"},
	{"a", "04 05 00*7 'init/' " + one, one},
	{"a", setK + one + "'v'", ""},
	{"a", "06 " + one + two + "'/k'", "00"},
	{"a", "03 " + two + "'/k'", one + "'v'"},
	{"a", "03 " + two + "'/x'", "00*8"}, // missing is empty
	{"a", "0a " + two + two + "'/x' " + two + "'/k'", "00*8 " + one + "'v'"},
	{"a", "02 " + two + "'/c' " + one + "'x' " + one + "'y'", one + "'x'"},
	{"a", "02 " + two + "'/c' 00*8 " + one + "'y'", one + "'y'"},
	{"a", "05 " + one + two + "'/k'", "00"},
	{"a", "05 " + one + two + "'/x'", "01"},
	{"a", "09 " + two + "'/k' " + one + "'w'", ""},
	{"a", "03 " + two + "'/k'", two + "'vw'"},
	{"a", "0b " + two + two + "'/m' " + one + "'1' " + two + "'/n' " + one + "'2'", ""},
	{"a", "07", "05 00*7"},
	{"a", delK, one},
	{"a", delK, "00*8"},
	{"a", "00 ce f7 85 3c", ""}, // once more does no harm
	{"a", "0e " + two + "'/q' " + one + "'1'", ""},
	{"a", "10 " + two + "'/q'", one},
	{"a", "05 " + one + two + "'/q'", "00"}, // a queue with something in it exists
	{"a", "0f " + two + "'/q'", one + one + "'1'"},
	{"a", "0f " + two + "'/q'", "00*8"},
	{"a", "12 " + two + "'/b' " + one, "00"},
	{"a", "0b " + "00*8", ""},
	{"a", "0a " + "00*8", ""},
	{"a", "0c", "01"}, // CANCEL_WAIT of nothing
}

// bytesOf is all that is asked and all that is answered, where there is one client.
func (x talk) bytesOf(t *testing.T) (ask, answer []byte) {
	for _, line := range x {
		ask, answer = append(ask, unhex(t, line.ask)...), append(answer, unhex(t, line.answer)...)
	}
	return ask, answer
}

func TestTheDialectOf22IsSpoken(t *testing.T) { captured26.run(t, ServerConfig{Dialect: Dialect22}) }

func TestEveryFragmentationOfAConversationHasTheSameAnswers(t *testing.T) {
	ask, answer := captured26.bytesOf(t)
	own, ownAnswer := ownTalk.bytesOf(t)
	for _, x := range []struct{ ask, answer []byte }{{ask, answer}, {own, ownAnswer}} {
		for cut := range len(x.ask) + 1 {
			s := newServer(ServerConfig{})
			near, far := net.Pipe()
			s.attach(far)
			got := make([]byte, len(x.answer))
			done := make(chan error, 1)
			go func() {
				_, err := io.ReadFull(near, got)
				done <- err
			}()
			for _, piece := range [][]byte{x.ask[:cut], x.ask[cut:]} {
				_, err := near.Write(piece)
				require.NoError(t, err)
			}
			require.NoError(t, <-done)
			require.Equal(t, x.answer, got, "cut at %d", cut)
			near.Close()
			require.NoError(t, s.Close())
		}
	}
}

func TestWhoShouldGreetAndDoesNotIsClosed(t *testing.T) {
	for name, x := range map[string]struct {
		dialect Dialect
		bytes   string
	}{
		"not at all":              {Dialect22, "07"},
		"as PyTorch 1.13":         {Dialect22, "03 05 00*7 'init/' 01 00*7"},
		"with another number":     {Dialect22, "00 ce f7 85 3d"},
		"again, wrong":            {DialectAuto, hello + " 00 ce f7 85 3d"},
		"wrong, to 1.13":          {DialectAuto, "00 ce f7 85 3d 00 00 00 00"}, // the length of a key
		"an opcode of no dialect": {DialectAuto, hello + " 13"},
		"own opcodes are hidden":  {DialectAuto, hello + " 40"},
		"no own mode before 2.2":  {Dialect21, "04 01 00*7 06 00*7 'weft/1' 40"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, ServerConfig{Dialect: x.dialect})
			r := connectRaw(t, s)
			r.send(x.bytes)
			_, _ = io.Copy(io.Discard, r.nc)
			r.expectClosed()
			require.EqualValues(t, 1, s.Stats().Broken)
		})
	}
}

func TestAMissingKeyIsToldAsEachReleaseDoes(t *testing.T) {
	talk{{"a", "02 " + two + "'/k'", "closed"}}.run(t, ServerConfig{Dialect: Dialect113})
	talk{{"a", "02 " + two + "'/k'", "closed"}}.run(t, ServerConfig{Dialect: Dialect20})
	talk{{"a", "0a " + one + two + "'/k'", "closed"}}.run(t, ServerConfig{Dialect: Dialect20})
	talk{{"a", "09 " + one + two + "'/k'", "closed"}}.run(t, ServerConfig{Dialect: Dialect21})
	talk{{"a", hello + " 03 " + two + "'/k'", "00*8"}, {"a", "0a " + one + two + "'/k'", "00*8"}}.run(t, ServerConfig{})
	talk{{"a", ownMode, "00"}, {"a", "03 " + two + "'/k'", "05 0b 00*7 6e6f2073756368206b6579"},
		{"a", "0a " + one + two + "'/k'", "05 0b 00*7 6e6f2073756368206b6579"}}.run(t, ServerConfig{})
}

func TestACancelledWaitIsForgottenInEveryDialectThatCan(t *testing.T) {
	for d, codes := range map[Dialect]struct{ greet, wait, cancel, set, num string }{
		Dialect20: {"", "05 ", "0c", "00 ", "06"}, Dialect21: {"", "05 ", "0b", "00 ", "06"}, Dialect22: {hello, "06 ", "0c", "01 ", "07"},
	} {
		talk{
			{"a", codes.greet, ""}, {"b", codes.greet, ""},
			{"a", codes.wait + one + two + "'/k'", ""},
			{"a", codes.cancel, "01"},
			{"b", codes.set + two + "'/k' 00*8", ""},
			{"a", codes.num, one}, // and nothing before
			{"a", codes.wait + one + two + "'/j'", ""},
			{"b", codes.set + two + "'/j' 00*8", ""},
			{"a", codes.cancel, "00 01"}, // the key was quicker
		}.run(t, ServerConfig{Dialect: d})
	}
	talk{{"a", "0c", "closed"}}.run(t, ServerConfig{Dialect: Dialect113})
}

func TestAnAppendIsToldToWatchersOf20AsTheirPyTorchDoes(t *testing.T) {
	steps := func(appending string, news ...string) talk {
		return talk{
			{"w", "07 " + two + "'/w'", "03"},
			{"a", appending + two + "'/w' " + one + "'x'", ""}, {"w", "", news[0]},
			{"a", appending + two + "'/w' " + one + "'y'", ""}, {"w", "", news[1]},
			{"a", "0b " + one + two + "'/w' " + one + "'z'", ""}, {"w", "", news[2]},
		}
	}
	steps("09 ", "01 "+two+"'/w' 00*8 "+one+"'x'", "04 "+two+"'/w' 00*8 "+one+"'y'",
		"00 "+two+"'/w' "+two+"'xy' "+one+"'z'").run(t, ServerConfig{Dialect: Dialect20})
}

func TestWhatIsPushedWakesOneOfThosePyTorchClientsThatWaitToPop(t *testing.T) {
	wait, pop := "06 "+one+two+"'/q'", "0f "+two+"'/q'"
	talk{
		{"a", hello + " " + wait, ""}, {"b", hello + " " + wait, ""}, {"c", hello, ""},
		{"c", "0e " + two + "'/q' " + one + "'1'", ""},
		{"a", "", "00"}, {"a", pop, one + one + "'1'"},
		{"b", "07", "00*8"}, // it was told nothing
		{"c", "0e " + two + "'/q' " + one + "'2'", ""},
		{"b", "", "00"}, {"b", pop, one + one + "'2'"},
	}.run(t, ServerConfig{})
}

func TestABarrierLetsAllGoWhenAllHaveCome(t *testing.T) {
	come := "12 " + two + "'/b' " + two
	talk{
		{"a", hello + " " + come, ""}, {"b", hello, ""},
		{"b", "11", one + two + "'/b'"},
		{"b", come, "00"}, {"a", "", "00"},
		{"a", come, "00"},
		{"a", "12 " + two + "'/c' " + two, ""}, {"a", "0c", "01"}, // it counts, though it has gone
		{"b", "12 " + two + "'/c' " + two, "00"}, {"a", "07", two},
	}.run(t, ServerConfig{})
}

func TestTheSecondConnectionOfPyTorch113MayBeSilent(t *testing.T) {
	s := startServer(t, ServerConfig{})
	silent, r := connectRaw(t, s), connectRaw(t, s)
	r.send("03 05 00*7 'init/' 01 00*7")
	r.expect("01 00*7")
	silent.send("07 02 00*7 '/k'")
	silent.expect("03")
	r.send("06")
	r.expect("01 00*7")
}

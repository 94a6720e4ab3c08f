package server

import (
	"io"
	"net"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/store/internal/talktest"
	"github.com/weft-project/weft/store/internal/wire"
)

// talk is a conversation with one server: who says what, and what the answer is.
type talk []talktest.Line

// run has it on pipes, where nothing is lost and nobody waits for a clock.
func (x talk) run(t *testing.T, cfg Config) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(cfg)
		defer s.Close()
		clients := map[string]talktest.Raw{}
		for i, line := range x {
			r, known := clients[line.Who]
			if !known {
				near, far := net.Pipe()
				r = talktest.NewRaw(t, near)
				clients[line.Who] = r
				s.attach(far)
			}
			if line.Ask != "" {
				r.Send(line.Ask)
			}
			if line.Answer == "closed" {
				r.ExpectClosed()
				continue
			}
			t.Logf("%d %s: %s", i, line.Who, line.Ask)
			r.Expect(line.Answer)
			synctest.Wait()
		}
	})
}

// captured26 is a conversation in the dialect of PyTorch 2.2 and later.
var captured26 = talk{
	{Who: "a", Ask: talktest.Hello, Answer: ""},
	{Who: "a", Ask: "0d 01 02 03 04", Answer: "01 02 03 04"},
	{Who: "a", Ask: "04 05 00*7 'init/' " + talktest.One, Answer: talktest.One},
	{Who: "a", Ask: talktest.SetK + talktest.One + "'v'", Answer: ""},
	{Who: "a", Ask: "06 " + talktest.One + talktest.Two + "'/k'", Answer: "00"},
	{Who: "a", Ask: "03 " + talktest.Two + "'/k'", Answer: talktest.One + "'v'"},
	{Who: "a", Ask: "03 " + talktest.Two + "'/x'", Answer: "00*8"}, // missing is empty
	{Who: "a", Ask: "0a " + talktest.Two + talktest.Two + "'/x' " + talktest.Two + "'/k'", Answer: "00*8 " + talktest.One + "'v'"},
	{Who: "a", Ask: "02 " + talktest.Two + "'/c' " + talktest.One + "'x' " + talktest.One + "'y'", Answer: talktest.One + "'x'"},
	{Who: "a", Ask: "02 " + talktest.Two + "'/c' 00*8 " + talktest.One + "'y'", Answer: talktest.One + "'y'"},
	{Who: "a", Ask: "05 " + talktest.One + talktest.Two + "'/k'", Answer: "00"},
	{Who: "a", Ask: "05 " + talktest.One + talktest.Two + "'/x'", Answer: "01"},
	{Who: "a", Ask: "09 " + talktest.Two + "'/k' " + talktest.One + "'w'", Answer: ""},
	{Who: "a", Ask: "03 " + talktest.Two + "'/k'", Answer: talktest.Two + "'vw'"},
	{Who: "a", Ask: "0b " + talktest.Two + talktest.Two + "'/m' " + talktest.One + "'1' " + talktest.Two + "'/n' " + talktest.One + "'2'", Answer: ""},
	{Who: "a", Ask: "07", Answer: "05 00*7"},
	{Who: "a", Ask: talktest.DelK, Answer: talktest.One},
	{Who: "a", Ask: talktest.DelK, Answer: "00*8"},
	{Who: "a", Ask: "00 ce f7 85 3c", Answer: ""}, // once more does no harm
	{Who: "a", Ask: "0e " + talktest.Two + "'/q' " + talktest.One + "'1'", Answer: ""},
	{Who: "a", Ask: "10 " + talktest.Two + "'/q'", Answer: talktest.One},
	{Who: "a", Ask: "05 " + talktest.One + talktest.Two + "'/q'", Answer: "00"}, // a queue with something in it exists
	{Who: "a", Ask: "0f " + talktest.Two + "'/q'", Answer: talktest.One + talktest.One + "'1'"},
	{Who: "a", Ask: "0f " + talktest.Two + "'/q'", Answer: "00*8"},
	{Who: "a", Ask: "12 " + talktest.Two + "'/b' " + talktest.One, Answer: "00"},
	{Who: "a", Ask: "0b " + "00*8", Answer: ""},
	{Who: "a", Ask: "0a " + "00*8", Answer: ""},
	{Who: "a", Ask: "0c", Answer: "01"}, // CANCEL_WAIT of nothing
}

// bytesOf is all that is asked and all that is answered, where there is one client.
func (x talk) bytesOf(t *testing.T) (ask, answer []byte) {
	for _, line := range x {
		ask, answer = append(ask, talktest.Unhex(t, line.Ask)...), append(answer, talktest.Unhex(t, line.Answer)...)
	}
	return ask, answer
}

func TestTheDialectOf22IsSpoken(t *testing.T) { captured26.run(t, Config{Dialect: wire.Dialect22}) }

func TestEveryFragmentationOfAConversationHasTheSameAnswers(t *testing.T) {
	ask, answer := captured26.bytesOf(t)
	own, ownAnswer := ownTalk.bytesOf(t)
	for _, x := range []struct{ ask, answer []byte }{{ask, answer}, {own, ownAnswer}} {
		for cut := range len(x.ask) + 1 {
			s := newServer(Config{})
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
		dialect wire.Dialect
		bytes   string
	}{
		"not at all":              {wire.Dialect22, "07"},
		"as PyTorch 1.13":         {wire.Dialect22, "03 05 00*7 'init/' 01 00*7"},
		"with another number":     {wire.Dialect22, "00 ce f7 85 3d"},
		"again, wrong":            {wire.DialectAuto, talktest.Hello + " 00 ce f7 85 3d"},
		"wrong, to 1.13":          {wire.DialectAuto, "00 ce f7 85 3d 00 00 00 00"}, // the length of a key
		"an opcode of no dialect": {wire.DialectAuto, talktest.Hello + " 13"},
		"own opcodes are hidden":  {wire.DialectAuto, talktest.Hello + " 40"},
		"no own mode before 2.2":  {wire.Dialect21, "04 01 00*7 06 00*7 'weft/1' 40"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, Config{Dialect: x.dialect})
			r := connectRaw(t, s)
			r.Send(x.bytes)
			_, _ = io.Copy(io.Discard, r.NC)
			r.ExpectClosed()
			require.EqualValues(t, 1, s.Stats().Broken)
		})
	}
}

func TestAMissingKeyIsToldAsEachReleaseDoes(t *testing.T) {
	talk{{Who: "a", Ask: "02 " + talktest.Two + "'/k'", Answer: "closed"}}.run(t, Config{Dialect: wire.Dialect113})
	talk{{Who: "a", Ask: "02 " + talktest.Two + "'/k'", Answer: "closed"}}.run(t, Config{Dialect: wire.Dialect20})
	talk{{Who: "a", Ask: "0a " + talktest.One + talktest.Two + "'/k'", Answer: "closed"}}.run(t, Config{Dialect: wire.Dialect20})
	talk{{Who: "a", Ask: "09 " + talktest.One + talktest.Two + "'/k'", Answer: "closed"}}.run(t, Config{Dialect: wire.Dialect21})
	talk{{Who: "a", Ask: talktest.Hello + " 03 " + talktest.Two + "'/k'", Answer: "00*8"}, {Who: "a", Ask: "0a " + talktest.One + talktest.Two + "'/k'", Answer: "00*8"}}.run(t, Config{})
	talk{{Who: "a", Ask: talktest.OwnMode, Answer: "00"}, {Who: "a", Ask: "03 " + talktest.Two + "'/k'", Answer: "05 0b 00*7 6e6f2073756368206b6579"},
		{Who: "a", Ask: "0a " + talktest.One + talktest.Two + "'/k'", Answer: "05 0b 00*7 6e6f2073756368206b6579"}}.run(t, Config{})
}

func TestACancelledWaitIsForgottenInEveryDialectThatCan(t *testing.T) {
	for d, codes := range map[wire.Dialect]struct{ greet, wait, cancel, set, num string }{
		wire.Dialect20: {"", "05 ", "0c", "00 ", "06"}, wire.Dialect21: {"", "05 ", "0b", "00 ", "06"}, wire.Dialect22: {talktest.Hello, "06 ", "0c", "01 ", "07"},
	} {
		talk{
			{Who: "a", Ask: codes.greet, Answer: ""}, {Who: "b", Ask: codes.greet, Answer: ""},
			{Who: "a", Ask: codes.wait + talktest.One + talktest.Two + "'/k'", Answer: ""},
			{Who: "a", Ask: codes.cancel, Answer: "01"},
			{Who: "b", Ask: codes.set + talktest.Two + "'/k' 00*8", Answer: ""},
			{Who: "a", Ask: codes.num, Answer: talktest.One}, // and nothing before
			{Who: "a", Ask: codes.wait + talktest.One + talktest.Two + "'/j'", Answer: ""},
			{Who: "b", Ask: codes.set + talktest.Two + "'/j' 00*8", Answer: ""},
			{Who: "a", Ask: codes.cancel, Answer: "00 01"}, // the key was quicker
		}.run(t, Config{Dialect: d})
	}
	talk{{Who: "a", Ask: "0c", Answer: "closed"}}.run(t, Config{Dialect: wire.Dialect113})
}

func TestAnAppendIsToldToWatchersOf20AsTheirPyTorchDoes(t *testing.T) {
	steps := func(appending string, news ...string) talk {
		return talk{
			{Who: "w", Ask: "07 " + talktest.Two + "'/w'", Answer: "03"},
			{Who: "a", Ask: appending + talktest.Two + "'/w' " + talktest.One + "'x'", Answer: ""}, {Who: "w", Ask: "", Answer: news[0]},
			{Who: "a", Ask: appending + talktest.Two + "'/w' " + talktest.One + "'y'", Answer: ""}, {Who: "w", Ask: "", Answer: news[1]},
			{Who: "a", Ask: "0b " + talktest.One + talktest.Two + "'/w' " + talktest.One + "'z'", Answer: ""}, {Who: "w", Ask: "", Answer: news[2]},
		}
	}
	steps("09 ", "01 "+talktest.Two+"'/w' 00*8 "+talktest.One+"'x'", "04 "+talktest.Two+"'/w' 00*8 "+talktest.One+"'y'",
		"00 "+talktest.Two+"'/w' "+talktest.Two+"'xy' "+talktest.One+"'z'").run(t, Config{Dialect: wire.Dialect20})
}

func TestWhatIsPushedWakesOneOfThosePyTorchClientsThatWaitToPop(t *testing.T) {
	wait, pop := "06 "+talktest.One+talktest.Two+"'/q'", "0f "+talktest.Two+"'/q'"
	talk{
		{Who: "a", Ask: talktest.Hello + " " + wait, Answer: ""}, {Who: "b", Ask: talktest.Hello + " " + wait, Answer: ""}, {Who: "c", Ask: talktest.Hello, Answer: ""},
		{Who: "c", Ask: "0e " + talktest.Two + "'/q' " + talktest.One + "'1'", Answer: ""},
		{Who: "a", Ask: "", Answer: "00"}, {Who: "a", Ask: pop, Answer: talktest.One + talktest.One + "'1'"},
		{Who: "b", Ask: "07", Answer: "00*8"}, // it was told nothing
		{Who: "c", Ask: "0e " + talktest.Two + "'/q' " + talktest.One + "'2'", Answer: ""},
		{Who: "b", Ask: "", Answer: "00"}, {Who: "b", Ask: pop, Answer: talktest.One + talktest.One + "'2'"},
	}.run(t, Config{})
}

func TestABarrierLetsAllGoWhenAllHaveCome(t *testing.T) {
	come := "12 " + talktest.Two + "'/b' " + talktest.Two
	talk{
		{Who: "a", Ask: talktest.Hello + " " + come, Answer: ""}, {Who: "b", Ask: talktest.Hello, Answer: ""},
		{Who: "b", Ask: "11", Answer: talktest.One + talktest.Two + "'/b'"},
		{Who: "b", Ask: come, Answer: "00"}, {Who: "a", Ask: "", Answer: "00"},
		{Who: "a", Ask: come, Answer: "00"},
		{Who: "a", Ask: "12 " + talktest.Two + "'/c' " + talktest.Two, Answer: ""}, {Who: "a", Ask: "0c", Answer: "01"}, // it counts, though it has gone
		{Who: "b", Ask: "12 " + talktest.Two + "'/c' " + talktest.Two, Answer: "00"}, {Who: "a", Ask: "07", Answer: talktest.Two},
	}.run(t, Config{})
}

func TestTheSecondConnectionOfPyTorch113MayBeSilent(t *testing.T) {
	s := startServer(t, Config{})
	silent, r := connectRaw(t, s), connectRaw(t, s)
	r.Send("03 05 00*7 'init/' 01 00*7")
	r.Expect("01 00*7")
	silent.Send("07 02 00*7 '/k'")
	silent.Expect("03")
	r.Send("06")
	r.Expect("01 00*7")
}

package output

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

func newLines(w *bytes.Buffer, terminal bool) *Lines {
	return &Lines{Sink: &Sink{screen: &screen{}, w: w, terminal: terminal}, Prefix: NewLabel("[0] "), Keep: true}
}

func TestWhatAStreamShows(t *testing.T) {
	for name, c := range map[string]struct {
		writes   []string
		terminal bool
		want     string
	}{
		"whole lines":                         {[]string{"a\nb\n"}, false, "[0] a\n[0] b\n"},
		"a line in pieces":                    {[]string{"a", "b", "\nc\n"}, false, "[0] ab\n[0] c\n"},
		"an empty line":                       {[]string{"a\n\nb\n"}, false, "[0] a\n[0] \n[0] b\n"},
		"a last line without an end":          {[]string{"a\nb"}, false, "[0] a\n[0] b\n"},
		"carriage return and line feed":       {[]string{"a\r\nb\r", "\n"}, false, "[0] a\n[0] b\n"},
		"a bar in a file is lines":            {[]string{"\r1%", "\r2%", "\r100%\n"}, false, "[0] 1%\n[0] 2%\n[0] 100%\n"},
		"nothing":                             {[]string{""}, false, ""},
		"a bar on a terminal":                 {[]string{"\r1%", "\r22%\n"}, true, "[0] 1%\r[0] 22%\x1b[K\n"},
		"a bar that ends with the return":     {[]string{"1%\r", "2%\r", "done\n"}, true, "[0] 1%\r[0] 2%\x1b[K\r[0] done\x1b[K\n"},
		"a bar in pieces":                     {[]string{"\r", "1", "%", "\n"}, true, "[0] 1\r[0] 1%\x1b[K\r[0] 1%\x1b[K\n"},
		"a bar that is never finished":        {[]string{"\r1%"}, true, "[0] 1%\r[0] 1%\x1b[K\n"},
		"a line on a terminal waits for \\n":  {[]string{"a", "b\n"}, true, "[0] ab\n"},
		"line ends of Windows on a terminal":  {[]string{"a\r\nb\r\n"}, true, "[0] a\n[0] b\n"},
		"a cleared line shows nothing itself": {[]string{"\r\r\r"}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			l := newLines(&got, c.terminal)
			for _, w := range c.writes {
				n, err := l.Write([]byte(w))
				require.NoError(t, err)
				require.Equal(t, len(w), n)
			}
			l.Close()
			require.Equal(t, c.want, got.String())
		})
	}
}

// shownAtOnce is the oracle for a stream that does not go to a terminal: it sees the whole stream.
func shownAtOnce(stream string) string {
	var out strings.Builder
	stream = strings.ReplaceAll(stream, "\r\n", "\n")
	for piece := range strings.SplitAfterSeq(stream, "\n") {
		parts := strings.Split(strings.TrimSuffix(piece, "\n"), "\r")
		for i, part := range parts {
			if last := i == len(parts)-1; part == "" && !(last && strings.HasSuffix(piece, "\n")) {
				continue
			}
			for len(part) > maxLine {
				out.WriteString("[0] " + part[:maxLine] + "\n")
				part = part[maxLine:]
			}
			out.WriteString("[0] " + part + "\n")
		}
	}
	return out.String()
}

func showInPieces(r *rand.Rand, stream string, terminal bool) (string, *Lines) {
	var got bytes.Buffer
	l := newLines(&got, terminal)
	for rest := stream; rest != ""; {
		n := 1 + r.IntN(len(rest))
		_, _ = l.Write([]byte(rest[:n]))
		rest = rest[n:]
	}
	l.Close()
	return got.String(), l
}

func TestHowAStreamIsCutIntoWritesDoesNotMatter(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range soak.Cases(2000) {
		stream := make([]byte, r.IntN(40))
		for i := range stream {
			stream[i] = "ab\r\n\n"[r.IntN(5)]
		}
		got, _ := showInPieces(r, string(stream), false)
		require.Equal(t, shownAtOnce(string(stream)), got, "seed %d, %q", seed, stream)
	}
}

func TestALongLineIsShownInPiecesAndMemoryIsBounded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{maxLine - 1, maxLine, maxLine + 1, 2 * maxLine, 3*maxLine + 7} {
		for _, end := range []string{"", "\n", "\r", "\r\n", "\nx"} {
			stream := strings.Repeat("y", n) + end
			got, l := showInPieces(r, stream, false)
			require.True(t, shownAtOnce(stream) == got, "%d bytes and %q", n, end)
			require.LessOrEqual(t, cap(l.buf), 2*maxLine)
			for _, line := range l.Tail() {
				require.LessOrEqual(t, len(line), maxTailLine)
			}
		}
	}
}

func TestABarLeftOnTheTerminalIsNotWrittenOver(t *testing.T) {
	var got bytes.Buffer
	l := newLines(&got, true)
	_, _ = l.Write([]byte("50%\r\r"))
	l.Close()
	l.Sink.Drain()
	l.Sink.Drain()
	require.Equal(t, "[0] 50%\r\n", got.String())
}

func TestTheTailIsTheLastLinesThatSaySomething(t *testing.T) {
	l := newLines(&bytes.Buffer{}, false)
	_, _ = l.Write([]byte("old\n\n" + strings.Repeat("line\n\n", tailLines-1) + "end"))
	l.Close()
	require.Equal(t, append(strings.Fields(strings.Repeat("line ", tailLines-1)), "end"), l.Tail())
}

func TestLinesOfSeveralStreamsNeverMix(t *testing.T) {
	var got bytes.Buffer
	shared := &screen{}
	out, err := &Sink{screen: shared, w: &got}, &Sink{screen: shared, w: &got}
	var wg sync.WaitGroup
	for i, prefix := range []string{"[0] ", "[1] ", "[2] ", "[3] "} {
		to := out
		if i%2 == 1 {
			to = err
		}
		wg.Go(func() {
			l := &Lines{Sink: to, Prefix: NewLabel(prefix)}
			for range 500 {
				_, _ = l.Write([]byte("hal"))
				_, _ = l.Write([]byte("f\n"))
			}
		})
	}
	wg.Wait()
	n := 0
	for line := range strings.Lines(got.String()) {
		require.Regexp(t, `^\[[0-3]\] half\n$`, line)
		n++
	}
	require.Equal(t, 2000, n)
}

func FuzzLinesShowAStreamAsIfItCameAtOnce(f *testing.F) {
	f.Add("a\r\nb\r\rc\n\n", uint64(1))
	f.Fuzz(func(t *testing.T, stream string, seed uint64) {
		got, _ := showInPieces(rand.New(rand.NewPCG(seed, 0)), stream, false)
		require.Equal(t, shownAtOnce(stream), got)
		// On a terminal all of the text must still be there, covered or not.
		shown, _ := showInPieces(rand.New(rand.NewPCG(seed, 1)), stream, true)
		for line := range strings.Lines(shownAtOnce(stream)) {
			require.Contains(t, shown, strings.TrimSuffix(line, "\n"))
		}
	})
}

func TestOnATerminalThePromptOfWhoAsksIsShownAtOnce(t *testing.T) {
	for _, c := range []struct {
		terminal, asks bool
		want           string
	}{
		{true, true, "[0] (Pdb) \r[0] (Pdb) 42\x1b[K\n[0] end\n"},
		{true, false, "[0] (Pdb) 42\n[0] end\n"},
		{false, true, "[0] (Pdb) 42\n[0] end\n"},
	} {
		var got bytes.Buffer
		l := newLines(&got, c.terminal)
		l.Asks = c.asks
		_, _ = l.Write([]byte("(Pdb) "))
		if c.terminal && c.asks {
			require.Equal(t, "[0] (Pdb) ", got.String())
		} else {
			require.Empty(t, got.String())
		}
		_, _ = l.Write([]byte("42\nend\n"))
		l.Close()
		require.Equal(t, c.want, got.String())
	}
}

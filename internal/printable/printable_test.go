package printable_test

import (
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/printable"
)

func TestTextThatIsShownMovesNoCursorAndForgesNoLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                        "",
		"plain, größer ≥ 1 世界 🙂":  "plain, größer ≥ 1 世界 🙂",
		"\x1b[2J\x1b]0;title\x07": " [2J ]0;title ",
		"one\ntwo\r\tthree":       "one two  three",
		"a\u202eb\u2028c\u200bd":  "a b c d",
		"\x80\xff\u009b31m":       "   31m",
		"\x7f\x00":                "  ",
	} {
		require.Equal(t, want, printable.Text(in, 1000), "%q", in)
	}
}

func TestALongTextIsCutBetweenCharacters(t *testing.T) {
	for most := range 40 {
		got := printable.Text("世界世界世界世界世界 and more", most)
		require.LessOrEqual(t, len(got), most)
		require.True(t, utf8.ValidString(got))
		require.NotContains(t, got, " 世", "no character was broken")
	}
	require.Equal(t, "12345", printable.Text("12345", 5))
	require.Equal(t, "12…", printable.Text("123456", 5))
}

func TestLinesStayLinesAndNothingElseDoes(t *testing.T) {
	require.Equal(t, "one\n\ttwo [31m\n three", printable.Lines("one\n\ttwo\x1b[31m\n\rthree", 100))
	require.Equal(t, "one\n…", printable.Lines("one\ntwo three", 7))
}

func FuzzText(f *testing.F) {
	f.Add("\x1b[31mred", 5)
	f.Fuzz(func(t *testing.T, s string, most int) {
		most = max(0, min(most, 1<<12))
		got := printable.Text(s, most)
		require.LessOrEqual(t, len(got), most)
		require.True(t, utf8.ValidString(got))
		for _, r := range got {
			require.True(t, unicode.IsPrint(r), "%q", r)
		}
		require.Equal(t, got, printable.Text(got, most), "what is fit stays as it is")
	})
}

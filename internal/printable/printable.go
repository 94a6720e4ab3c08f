package printable

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// cut ends a text that was too long.
const cut = "…"

// Text is s with every control character, line break, direction mark and broken byte of UTF-8
// replaced by a space, and with at most most bytes. A text that is longer is cut between two
// characters and ends with an ellipsis.
func Text(s string, most int) string { return text(s, most, "") }

// Lines is Text, but for line breaks and tabs, which stay. It is for text whose lines are not mixed
// with others, so that none is forged.
func Lines(s string, most int) string { return text(s, most, "\n\t") }

// text is Text that leaves some characters alone.
func text(s string, most int, but string) string {
	long := len(s) > most
	if long {
		s = s[:max(most-len(cut), 0)]
		for len(s) > 0 { // not within a character
			r, size := utf8.DecodeLastRuneInString(s)
			if r != utf8.RuneError || size != 1 {
				break
			}
			s = s[:len(s)-1]
		}
	}
	s = strings.Map(func(r rune) rune {
		if (r == utf8.RuneError || !unicode.IsPrint(r)) && !strings.ContainsRune(but, r) { // IsPrint has no space but the plain one, no direction mark and no separator of lines
			return ' '
		}
		return r
	}, s)
	if long && most >= len(cut) {
		s += cut
	}
	return s
}

package storecmd

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
)

// printer writes what lies in a store, which may be anything.
type printer struct {
	w        io.Writer
	terminal bool
}

func newPrinter(w io.Writer) printer {
	return printer{w, cli.Terminal(w) != nil}
}

// value writes one value: to a terminal as a line that cannot steer it, elsewhere as it is, without
// anything more.
func (p printer) value(v []byte) error {
	if p.terminal {
		return p.line(string(v))
	}
	_, err := p.w.Write(v)
	return err
}

// line writes fields with tabs between them, each quoted as in Go where it could be taken for
// something else.
func (p printer) line(fields ...string) error {
	shown := make([]string, len(fields))
	for i, f := range fields {
		shown[i] = quoted(f)
	}
	_, err := fmt.Fprintln(p.w, strings.Join(shown, "\t"))
	return err
}

// quoted leaves text alone that can be seen, and begins with no quote.
func quoted(s string) string {
	odd := func(r rune) bool { return !unicode.IsPrint(r) }
	if utf8.ValidString(s) && !strings.HasPrefix(s, `"`) && !strings.ContainsFunc(s, odd) {
		return s
	}
	return strconv.Quote(s)
}

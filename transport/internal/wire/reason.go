package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"unicode/utf8"

	"github.com/weft-project/weft/internal/printable"
)

// Reason is why the peer has reset a stream. It lies beneath the ErrReset that streams give then.
// Who resets with one sends it as it is; of any other error the text travels.
type Reason struct {
	Code uint16 // what the text is about, where both ends agree on that; 0: nothing in particular
	Text string // at most 500 bytes of it travel
}

func (r *Reason) Error() string { return r.Text }

// MaxReset bounds the text of a reason.
const MaxReset = 500

// ReasonOf is what travels of an error that a stream is reset with; nil of nil.
func ReasonOf(err error) *Reason {
	if err == nil {
		return nil
	}
	r := &Reason{}
	if have := (*Reason)(nil); errors.As(err, &have) {
		r.Code = have.Code
	}
	r.Text = printable.Text(err.Error(), MaxReset)
	return r
}

// AppendReason writes a reason; nothing for none.
func AppendReason(b []byte, r *Reason) []byte {
	if r == nil {
		return b
	}
	return append(binary.LittleEndian.AppendUint16(b, r.Code), r.Text...)
}

// ParseReason reads what AppendReason wrote, which may be anything.
func ParseReason(b []byte) *Reason {
	if len(b) < 2 {
		return nil
	}
	return &Reason{binary.LittleEndian.Uint16(b), printable.Text(string(b[2:]), MaxReset)}
}

// MaxReason bounds the reason with which a link is closed, in bytes: it must fit into one packet.
const MaxReason = 200

// Truncate cuts a reason to its bound, between characters.
func Truncate(s string) string {
	if len(s) <= MaxReason {
		return s
	}
	n := MaxReason
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// IsContextEnd says that err is a context's own error, as interrupted calls return it.
func IsContextEnd(err error) bool {
	return err == context.Canceled || err == context.DeadlineExceeded //nolint:errorlint // a wrapped one is somebody else's
}

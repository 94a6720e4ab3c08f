package wire

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
)

// Dialect is one of the mutually incompatible ways in which PyTorch's releases speak the TCPStore
// protocol.
type Dialect byte

// The dialects. Releases of which one only knows more commands than the other are one dialect.
const (
	// DialectAuto is for a server: that of PyTorch 2.2 and later for who opens with its greeting,
	// and that of 1.13 for everybody else. For a client: the one of the two that the server
	// understands.
	DialectAuto Dialect = iota
	Dialect113          // PyTorch 1.13, and 2.0
	Dialect20           // PyTorch on the way from 2.0 to 2.1, in no release
	Dialect21           // PyTorch 2.1
	Dialect22           // PyTorch 2.2 and later, tried up to 2.15
)

// newest is the minor version of the newest release of PyTorch that was tried.
const newest = 15

// names are the spellings of the dialects: "auto", or the first release that speaks it.
var names = [...]string{DialectAuto: "auto", Dialect113: "1.13", Dialect20: "2.1.dev", Dialect21: "2.1", Dialect22: "2.2"}

// ParseDialect reads "auto" or a release of PyTorch, such as "1.13" or "2.15". One newer than those
// that were tried is refused: DialectAuto finds out what it speaks.
func ParseDialect(text string) (Dialect, error) {
	switch text {
	case "":
		return DialectAuto, nil
	case "2.0":
		return Dialect113, nil
	}
	if i := slices.Index(names[:], text); i >= 0 {
		return Dialect(i), nil
	}
	minor, two := strings.CutPrefix(text, "2.")
	if n, err := strconv.ParseUint(minor, 10, 16); two && err == nil && n <= newest && strconv.FormatUint(n, 10) == minor {
		return Dialect22, nil // 0 and 1 were above
	}
	return 0, fmt.Errorf("unknown dialect %q, expected auto or a release of PyTorch: 1.13, 2.0, 2.1, or 2.2 to 2.%d; auto serves newer ones, too", kv.Clip(text), newest)
}

// String is the first release that speaks d, or "auto".
func (d Dialect) String() string {
	if int(d) < len(names) {
		return names[d]
	}
	return fmt.Sprintf("Dialect(%d)", byte(d))
}

// CheckDialect refuses what is none.
func CheckDialect(d Dialect) error {
	if d > Dialect22 {
		return fmt.Errorf("there is no dialect %d", byte(d))
	}
	return nil
}

// opcodes has the commands of each dialect in the order of their codes.
var opcodes = [...][]state.Op{
	Dialect113: {state.OpSet, state.OpCompareSet, state.OpGet, state.OpAdd, state.OpCheck, state.OpWait, state.OpNumKeys, state.OpWatch, state.OpDelete},
	Dialect20: {state.OpSet, state.OpCompareSet, state.OpGet, state.OpAdd, state.OpCheck, state.OpWait, state.OpNumKeys, state.OpWatch, state.OpDelete,
		state.OpAppend, state.OpMultiGet, state.OpMultiSet, state.OpCancelWait},
	Dialect21: {state.OpSet, state.OpCompareSet, state.OpGet, state.OpAdd, state.OpCheck, state.OpWait, state.OpNumKeys, state.OpDelete,
		state.OpAppend, state.OpMultiGet, state.OpMultiSet, state.OpCancelWait},
	Dialect22: {state.OpValidate, state.OpSet, state.OpCompareSet, state.OpGet, state.OpAdd, state.OpCheck, state.OpWait, state.OpNumKeys, state.OpDelete,
		state.OpAppend, state.OpMultiGet, state.OpMultiSet, state.OpCancelWait, state.OpPing, state.OpPush, state.OpPop, state.OpLen, state.OpList, state.OpBarrier},
}

// ownOpcodes are Weft's own commands, from ownBase on.
var ownOpcodes = [...]state.Op{state.OpFetch, state.OpReady, state.OpWatch, state.OpUnwatch, state.OpArrive, state.OpReach}

const ownBase = 0x40

// Protocol is how the two ends of a connection speak: a dialect, not auto, and within Dialect22
// perhaps Weft's own mode.
//
// A client of ours asks a server of Dialect22 to CHECK the key [ModeKey], which no user's key can
// be, as those start with a slash. Only a server of ours says that it exists, and from then on
//
//   - every reply is preceded by a status byte, 0 or an error that a text follows, and commands
//     that PyTorch leaves unanswered are answered by the status alone;
//   - there are commands that PyTorch has not: FETCH (WAIT and MULTI_GET in one), READY (a WAIT for
//     a queue, whose end is the client's turn to QUEUE_POP), ARRIVE and REACH (the halves of
//     BARRIER; of all that waits nothing changes anything, so it can be asked again), WATCH, whose
//     news come on the same connection with a status of their own, and UNWATCH;
//   - a CANCEL_WAIT is answered by a status of its own, so that it is not taken for what it
//     cancels.
type Protocol struct {
	Dialect Dialect
	Own     bool
}

// ModeKey is what a client asks for to begin Weft's own mode.
const ModeKey = "weft/1"

// AsksOwnMode says whether cmd is the question that begins Weft's own mode.
func (w Protocol) AsksOwnMode(cmd *state.Command) bool {
	return cmd.Op == state.OpCheck && len(cmd.Keys) == 1 && cmd.Keys[0] == ModeKey && w.Dialect == Dialect22
}

// Op says what an opcode means.
func (w Protocol) Op(code byte) (state.Op, error) {
	if table := opcodes[w.Dialect]; int(code) < len(table) {
		return table[code], nil
	}
	if i := int(code) - ownBase; w.Own && i >= 0 && i < len(ownOpcodes) {
		return ownOpcodes[i], nil
	}
	return 0, fmt.Errorf("%w: unknown opcode %d in the dialect of PyTorch %v", kv.ErrProtocol, code, w.Dialect)
}

// Code is the opcode of a command.
func (w Protocol) Code(o state.Op) (byte, error) {
	if i := slices.Index(opcodes[w.Dialect], o); i >= 0 {
		return byte(i), nil
	}
	if i := slices.Index(ownOpcodes[:], o); w.Own && i >= 0 {
		return byte(ownBase + i), nil
	}
	return 0, fmt.Errorf("%w: PyTorch %v has no %v", kv.ErrUnsupported, w.Dialect, o)
}

// Answered says whether a server answers such a command, at once or in the end.
func (w Protocol) Answered(o state.Op) bool {
	switch o {
	case state.OpSet, state.OpAppend, state.OpMultiSet, state.OpPush:
		return w.Own
	case state.OpValidate:
		return false
	}
	return true
}

package wire

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
)

// Decoder reads either side of the protocol and believes no length: memory is taken as the bytes
// arrive.
type Decoder struct {
	Protocol
	Reader  *bufio.Reader
	Limits  kv.Limits
	held    int                   // bytes of the command under way
	Took    func(bytes int) error // unless nil, hears of held when it is more than promise, and may object
	scratch [8]byte
}

const (
	readAhead = 2 << 10  // what a decoder holds where nothing is under way
	promise   = 64 << 10 // what a mere promise of bytes costs us at most
	multi     = 8        // the pairs of one MULTI_SET may have this many times the bytes of the longest value
	listMost  = 64       // the same for the keys of a LIST_KEYS
)

// NewDecoder reads from r what the other end says in w.
func NewDecoder(r io.Reader, w Protocol, limits kv.Limits) *Decoder {
	return &Decoder{Protocol: w, Reader: bufio.NewReaderSize(r, readAhead), Limits: limits}
}

// Greeting reads how the other end opens, and takes its dialect from that where it can be told:
// only Dialect22 begins with an opcode 0 and the magic, which would be the half of a SET's length
// that is never used. Who should begin so, and does not, violates the protocol. Without a greeting
// nothing of the first command is taken. io.EOF means that nothing came.
func (d *Decoder) Greeting(otherwise Dialect) error {
	first, err := d.Reader.Peek(1)
	if err != nil {
		return err
	}
	if first[0] == 0 {
		head, err := d.Reader.Peek(5)
		if err != nil {
			return unexpected(err)
		}
		if binary.LittleEndian.Uint32(head[1:]) == magic {
			d.Dialect = Dialect22
			_, err = d.Reader.Discard(len(head))
			return err
		}
	}
	if d.Dialect = otherwise; d.Dialect == DialectAuto {
		d.Dialect = Dialect113
	}
	if d.Dialect == Dialect22 {
		return fmt.Errorf("%w: it opens with %#x and not with VALIDATE and PyTorch's magic number", kv.ErrProtocol, first[0])
	}
	return nil
}

// Command reads one command. io.EOF means that the client went away between two.
func (d *Decoder) Command() (state.Command, error) {
	code, err := d.Reader.ReadByte()
	if err != nil {
		return state.Command{}, err
	}
	var cmd state.Command
	d.held = 0
	if cmd.Op, err = d.Op(code); err == nil {
		err = d.arguments(&cmd)
	}
	return cmd, unexpected(err)
}

func (d *Decoder) arguments(cmd *state.Command) (err error) {
	switch cmd.Op {
	case state.OpNumKeys, state.OpList, state.OpCancelWait:
	case state.OpValidate:
		var n uint32
		if n, err = d.u32(); err == nil && n != magic {
			err = fmt.Errorf("%w: VALIDATE has %#x, expected %#x", kv.ErrProtocol, n, magic)
		}
	case state.OpPing:
		var n uint32
		n, err = d.u32()
		cmd.Delta = int64(n)
	case state.OpCheck, state.OpWait, state.OpMultiGet, state.OpFetch:
		cmd.Keys, err = d.keys()
	case state.OpMultiSet:
		cmd.Pairs, err = d.pairs()
	default:
		err = d.keyed(cmd)
	}
	return err
}

func (d *Decoder) keyed(cmd *state.Command) (err error) {
	if cmd.Key, err = d.key(); err != nil {
		return err
	}
	switch cmd.Op {
	case state.OpCompareSet:
		if cmd.Expected, err = d.bytes(d.Limits.Value, "value"); err != nil {
			return err
		}
		cmd.Value, err = d.bytes(d.Limits.Value, "value")
	case state.OpSet, state.OpAppend, state.OpPush:
		cmd.Value, err = d.bytes(d.Limits.Value, "value")
	case state.OpAdd, state.OpBarrier, state.OpArrive, state.OpReach:
		cmd.Delta, err = d.i64()
	}
	return err
}

func (d *Decoder) key() (string, error) {
	n, err := d.u64()
	if err == nil {
		err = checkLength(n, d.Limits.Key, "key")
	}
	if err != nil {
		return "", err
	}
	if n > readAhead {
		key, err := d.read(int(n))
		return string(key), err
	}
	b, err := d.Reader.Peek(int(n))
	if err != nil {
		return "", unexpected(err)
	}
	key := string(b)
	_, _ = d.Reader.Discard(len(key))
	return key, d.hold(len(key) + state.EntryBytes)
}

func (d *Decoder) keys() ([]string, error) {
	n, err := d.count()
	var keys []string
	for total := 0; err == nil && len(keys) < n; {
		var key string
		if key, err = d.key(); err != nil {
			break
		}
		if total += len(key); total > d.Limits.Value && n > 1 {
			return nil, fmt.Errorf("%w: the keys of one command have more than %d bytes together", kv.ErrTooLarge, d.Limits.Value)
		}
		keys = append(keys, key)
	}
	return keys, err
}

func (d *Decoder) pairs() ([]kv.Pair, error) {
	n, err := d.count()
	var pairs []kv.Pair
	for total := 0; err == nil && len(pairs) < n; {
		var p kv.Pair
		if p.Key, err = d.key(); err != nil {
			break
		}
		if p.Value, err = d.bytes(d.Limits.Value, "value"); err != nil {
			break
		}
		if total += len(p.Key) + len(p.Value); total > pairBytes(d.Limits) {
			return nil, fmt.Errorf("%w: the keys and values of one command have more than %d bytes together", kv.ErrTooLarge,
				pairBytes(d.Limits))
		}
		pairs = append(pairs, p)
	}
	return pairs, err
}

// pairBytes is how much may be in one MULTI_SET.
func pairBytes(l kv.Limits) int { return multi * l.Value }

// count reads how many keys or pairs follow.
func (d *Decoder) count() (int, error) {
	n, err := d.u64()
	if err == nil && n > uint64(d.Limits.Keys) {
		err = fmt.Errorf("%w: %d keys in one command, at most %d allowed", kv.ErrTooLarge, n, d.Limits.Keys)
	}
	return int(n), err
}

func (d *Decoder) u64() (uint64, error) {
	_, err := io.ReadFull(d.Reader, d.scratch[:])
	return binary.LittleEndian.Uint64(d.scratch[:]), err
}

func (d *Decoder) u32() (uint32, error) {
	_, err := io.ReadFull(d.Reader, d.scratch[:4])
	return binary.LittleEndian.Uint32(d.scratch[:]), err
}

func (d *Decoder) i64() (int64, error) {
	n, err := d.u64()
	return int64(n), err
}

// bytes reads a length of at most most, and that many bytes. The result is not nil.
func (d *Decoder) bytes(most int, what string) ([]byte, error) {
	n, err := d.u64()
	if err != nil {
		return nil, err
	}
	return d.exactly(n, most, what)
}

func (d *Decoder) exactly(n uint64, most int, what string) ([]byte, error) {
	if err := checkLength(n, most, what); err != nil {
		return nil, err
	}
	return d.read(int(n))
}

func checkLength(n uint64, most int, what string) error {
	if n > uint64(most) {
		return fmt.Errorf("%w: a %s of %d bytes, at most %d allowed", kv.ErrTooLarge, what, n, most)
	}
	return nil
}

func (d *Decoder) read(n int) ([]byte, error) {
	b, err := d.grow(make([]byte, 0), n)
	for err == nil && len(b) < n {
		more := b[len(b):min(cap(b), n)]
		if _, err := io.ReadFull(d.Reader, more); err != nil {
			return nil, unexpected(err)
		}
		if b = b[:len(b)+len(more)]; len(b) == cap(b) {
			b, err = d.grow(b, n)
		}
	}
	return b, err
}

// grow makes room for more of n bytes: as much again as there is.
func (d *Decoder) grow(b []byte, n int) ([]byte, error) {
	had := cap(b)
	b = slices.Grow(b, min(n-len(b), max(len(b), promise)))
	return b, d.hold(cap(b) - had)
}

// hold counts memory that the command under way takes.
func (d *Decoder) hold(bytes int) error {
	if d.held += bytes; d.Took == nil || d.held <= promise {
		return nil
	}
	return d.Took(d.held)
}

// unexpected is for an end of the bytes where there should be more.
func unexpected(err error) error {
	if err == io.EOF { //nolint:errorlint // readers return it bare
		return io.ErrUnexpectedEOF
	}
	return err
}

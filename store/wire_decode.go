package store

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// decoder reads either side of the protocol and believes no length: memory is taken as the bytes
// arrive.
type decoder struct {
	wire
	r       *bufio.Reader
	limits  Limits
	held    int                   // bytes of the command under way
	took    func(bytes int) error // unless nil, hears of held when it is more than promise, and may object
	scratch [8]byte
}

const (
	readAhead = 2 << 10  // what a decoder holds where nothing is under way
	promise   = 64 << 10 // what a mere promise of bytes costs us at most
	multi     = 8        // the pairs of one MULTI_SET may have this many times the bytes of the longest value
	listMost  = 64       // the same for the keys of a LIST_KEYS
)

func newDecoder(r io.Reader, w wire, limits Limits) *decoder {
	return &decoder{wire: w, r: bufio.NewReaderSize(r, readAhead), limits: limits}
}

// greeting reads how the other end opens, and takes its dialect from that where it can be told:
// only Dialect22 begins with an opcode 0 and the magic, which would be the half of a SET's length
// that is never used. Who should begin so, and does not, violates the protocol. Without a greeting
// nothing of the first command is taken. io.EOF means that nothing came.
func (d *decoder) greeting(otherwise Dialect) error {
	first, err := d.r.Peek(1)
	if err != nil {
		return err
	}
	if first[0] == 0 {
		head, err := d.r.Peek(5)
		if err != nil {
			return unexpected(err)
		}
		if binary.LittleEndian.Uint32(head[1:]) == magic {
			d.dialect = Dialect22
			_, err = d.r.Discard(len(head))
			return err
		}
	}
	if d.dialect = otherwise; d.dialect == DialectAuto {
		d.dialect = Dialect113
	}
	if d.dialect == Dialect22 {
		return fmt.Errorf("%w: it opens with %#x and not with VALIDATE and PyTorch's magic number", ErrProtocol, first[0])
	}
	return nil
}

// command reads one command. io.EOF means that the client went away between two.
func (d *decoder) command() (command, error) {
	code, err := d.r.ReadByte()
	if err != nil {
		return command{}, err
	}
	var cmd command
	d.held = 0
	if cmd.op, err = d.op(code); err == nil {
		err = d.arguments(&cmd)
	}
	return cmd, unexpected(err)
}

func (d *decoder) arguments(cmd *command) (err error) {
	switch cmd.op {
	case opNumKeys, opList, opCancelWait:
	case opValidate:
		var n uint32
		if n, err = d.u32(); err == nil && n != magic {
			err = fmt.Errorf("%w: VALIDATE has %#x, expected %#x", ErrProtocol, n, magic)
		}
	case opPing:
		var n uint32
		n, err = d.u32()
		cmd.delta = int64(n)
	case opCheck, opWait, opMultiGet, opFetch:
		cmd.keys, err = d.keys()
	case opMultiSet:
		cmd.pairs, err = d.pairs()
	default:
		err = d.keyed(cmd)
	}
	return err
}

func (d *decoder) keyed(cmd *command) (err error) {
	if cmd.key, err = d.key(); err != nil {
		return err
	}
	switch cmd.op {
	case opCompareSet:
		if cmd.expected, err = d.bytes(d.limits.Value, "value"); err != nil {
			return err
		}
		cmd.value, err = d.bytes(d.limits.Value, "value")
	case opSet, opAppend, opPush:
		cmd.value, err = d.bytes(d.limits.Value, "value")
	case opAdd, opBarrier, opArrive, opReach:
		cmd.delta, err = d.i64()
	}
	return err
}

func (d *decoder) key() (string, error) {
	n, err := d.u64()
	if err == nil {
		err = checkLength(n, d.limits.Key, "key")
	}
	if err != nil {
		return "", err
	}
	if n > readAhead {
		key, err := d.read(int(n))
		return string(key), err
	}
	b, err := d.r.Peek(int(n))
	if err != nil {
		return "", unexpected(err)
	}
	key := string(b)
	_, _ = d.r.Discard(len(key))
	return key, d.hold(len(key) + entryBytes)
}

func (d *decoder) keys() ([]string, error) {
	n, err := d.count()
	var keys []string
	for total := 0; err == nil && len(keys) < n; {
		var key string
		if key, err = d.key(); err != nil {
			break
		}
		if total += len(key); total > d.limits.Value && n > 1 {
			return nil, fmt.Errorf("%w: the keys of one command have more than %d bytes together", ErrTooLarge, d.limits.Value)
		}
		keys = append(keys, key)
	}
	return keys, err
}

func (d *decoder) pairs() ([]Pair, error) {
	n, err := d.count()
	var pairs []Pair
	for total := 0; err == nil && len(pairs) < n; {
		var p Pair
		if p.Key, err = d.key(); err != nil {
			break
		}
		if p.Value, err = d.bytes(d.limits.Value, "value"); err != nil {
			break
		}
		if total += len(p.Key) + len(p.Value); total > pairBytes(d.limits) {
			return nil, fmt.Errorf("%w: the keys and values of one command have more than %d bytes together", ErrTooLarge,
				pairBytes(d.limits))
		}
		pairs = append(pairs, p)
	}
	return pairs, err
}

// pairBytes is how much may be in one MULTI_SET.
func pairBytes(l Limits) int { return multi * l.Value }

// count reads how many keys or pairs follow.
func (d *decoder) count() (int, error) {
	n, err := d.u64()
	if err == nil && n > uint64(d.limits.Keys) {
		err = fmt.Errorf("%w: %d keys in one command, at most %d allowed", ErrTooLarge, n, d.limits.Keys)
	}
	return int(n), err
}

func (d *decoder) u64() (uint64, error) {
	_, err := io.ReadFull(d.r, d.scratch[:])
	return binary.LittleEndian.Uint64(d.scratch[:]), err
}

func (d *decoder) u32() (uint32, error) {
	_, err := io.ReadFull(d.r, d.scratch[:4])
	return binary.LittleEndian.Uint32(d.scratch[:]), err
}

func (d *decoder) i64() (int64, error) {
	n, err := d.u64()
	return int64(n), err
}

// bytes reads a length of at most most, and that many bytes. The result is not nil.
func (d *decoder) bytes(most int, what string) ([]byte, error) {
	n, err := d.u64()
	if err != nil {
		return nil, err
	}
	return d.exactly(n, most, what)
}

func (d *decoder) exactly(n uint64, most int, what string) ([]byte, error) {
	if err := checkLength(n, most, what); err != nil {
		return nil, err
	}
	return d.read(int(n))
}

func checkLength(n uint64, most int, what string) error {
	if n > uint64(most) {
		return fmt.Errorf("%w: a %s of %d bytes, at most %d allowed", ErrTooLarge, what, n, most)
	}
	return nil
}

func (d *decoder) read(n int) ([]byte, error) {
	b, err := d.grow(make([]byte, 0), n)
	for err == nil && len(b) < n {
		more := b[len(b):min(cap(b), n)]
		if _, err := io.ReadFull(d.r, more); err != nil {
			return nil, unexpected(err)
		}
		if b = b[:len(b)+len(more)]; len(b) == cap(b) {
			b, err = d.grow(b, n)
		}
	}
	return b, err
}

// grow makes room for more of n bytes: as much again as there is.
func (d *decoder) grow(b []byte, n int) ([]byte, error) {
	had := cap(b)
	b = slices.Grow(b, min(n-len(b), max(len(b), promise)))
	return b, d.hold(cap(b) - had)
}

// hold counts memory that the command under way takes.
func (d *decoder) hold(bytes int) error {
	if d.held += bytes; d.took == nil || d.held <= promise {
		return nil
	}
	return d.took(d.held)
}

// unexpected is for an end of the bytes where there should be more.
func unexpected(err error) error {
	if err == io.EOF { //nolint:errorlint // readers return it bare
		return io.ErrUnexpectedEOF
	}
	return err
}

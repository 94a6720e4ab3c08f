package store

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// The TCPStore protocol in the dialect of PyTorch 1.13: an opcode byte and its arguments, answered by the bare result.
// There is no framing. A string is a u64 length and its bytes, a count is u64, a number is i64, all little-endian.

// Single-byte answers.
const (
	byteReady      = 0 // check: all keys exist
	byteNotReady   = 1
	byteStop       = 0 // wait: all keys exist
	byteRegistered = 3 // watch: news will follow
)

func appendU64(b []byte, n int) []byte { return binary.LittleEndian.AppendUint64(b, uint64(n)) }

func appendBytes[T ~string | ~[]byte](b []byte, s T) []byte {
	return append(appendU64(b, len(s)), s...)
}

// appendCommand writes a command as a client does.
func appendCommand(b []byte, cmd command) []byte {
	b = append(b, byte(cmd.op))
	switch cmd.op {
	case opNumKeys:
		return b
	case opCheck, opWait:
		b = appendU64(b, len(cmd.keys))
		for _, k := range cmd.keys {
			b = appendBytes(b, k)
		}
		return b
	}
	b = appendBytes(b, cmd.key)
	switch cmd.op {
	case opSet:
		b = appendBytes(b, cmd.value)
	case opCompareSet:
		b = appendBytes(appendBytes(b, cmd.expected), cmd.value)
	case opAdd:
		b = binary.LittleEndian.AppendUint64(b, uint64(cmd.delta))
	}
	return b
}

// appendReply writes a reply without error as the server does.
func appendReply(b []byte, r reply) []byte {
	switch r.op {
	case opGet, opCompareSet:
		return appendBytes(b, r.value)
	case opAdd, opNumKeys, opDelete:
		return binary.LittleEndian.AppendUint64(b, uint64(r.n))
	case opCheck:
		if r.ok {
			return append(b, byteReady)
		}
		return append(b, byteNotReady)
	case opWait:
		return append(b, byteStop)
	case opWatch:
		return append(b, byteRegistered)
	case opNews:
		b = appendBytes(append(b, byte(r.event)), r.key)
		return appendBytes(appendBytes(b, r.old), r.value)
	}
	return b
}

// decoder reads either side of the protocol and believes no length: memory is taken as the bytes arrive.
type decoder struct {
	r       *bufio.Reader
	limits  Limits
	scratch [8]byte
}

func newDecoder(r io.Reader, limits Limits) *decoder {
	return &decoder{r: bufio.NewReader(r), limits: limits}
}

// command reads one command. io.EOF means that the client went away between two.
func (d *decoder) command() (command, error) {
	code, err := d.r.ReadByte()
	if err != nil {
		return command{}, err
	}
	cmd := command{op: op(code)}
	switch cmd.op {
	case opSet, opCompareSet, opGet, opAdd, opWatch, opDelete:
		err = d.keyed(&cmd)
	case opCheck, opWait:
		cmd.keys, err = d.keys()
	case opNumKeys:
	default:
		err = fmt.Errorf("%w: unknown opcode %d", ErrProtocol, code)
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return cmd, err
}

func (d *decoder) keyed(cmd *command) error {
	key, err := d.bytes(d.limits.Key, "key")
	if err != nil {
		return err
	}
	cmd.key = string(key)
	switch cmd.op {
	case opCompareSet:
		if cmd.expected, err = d.bytes(d.limits.Value, "value"); err != nil {
			return err
		}
		fallthrough
	case opSet:
		cmd.value, err = d.bytes(d.limits.Value, "value")
	case opAdd:
		cmd.delta, err = d.i64()
	}
	return err
}

func (d *decoder) keys() ([]string, error) {
	n, err := d.u64()
	if err != nil {
		return nil, err
	}
	if n > uint64(d.limits.Keys) {
		return nil, fmt.Errorf("%w: %d keys in one command, at most %d allowed", ErrTooLarge, n, d.limits.Keys)
	}
	var keys []string
	for total := 0; len(keys) < int(n); {
		key, err := d.bytes(d.limits.Key, "key")
		if err != nil {
			return nil, err
		}
		if total += len(key); total > d.limits.Value && n > 1 {
			return nil, fmt.Errorf("%w: the keys of one command have more than %d bytes together", ErrTooLarge, d.limits.Value)
		}
		keys = append(keys, string(key))
	}
	return keys, nil
}

func (d *decoder) u64() (uint64, error) {
	_, err := io.ReadFull(d.r, d.scratch[:])
	return binary.LittleEndian.Uint64(d.scratch[:]), err
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
	if n > uint64(most) {
		return nil, fmt.Errorf("%w: a %s of %d bytes, at most %d allowed", ErrTooLarge, what, n, most)
	}
	const first = 64 << 10 // what a mere promise of bytes costs us at most
	b := make([]byte, 0, min(int(n), first))
	for len(b) < int(n) {
		b = slices.Grow(b, min(int(n)-len(b), max(len(b), first)))
		more := b[len(b):min(cap(b), int(n))]
		if _, err := io.ReadFull(d.r, more); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		b = b[:len(b)+len(more)]
	}
	return b, nil
}

// reply reads what the server answers to a command.
func (d *decoder) reply(to op) (reply, error) {
	r := reply{op: to}
	var err error
	switch to {
	case opGet, opCompareSet:
		r.value, err = d.bytes(d.limits.Value, "value")
	case opAdd, opNumKeys, opDelete:
		r.n, err = d.i64()
	case opCheck:
		r.ok, err = d.choice("check", byteReady, byteNotReady)
	case opWait:
		_, err = d.choice("wait", byteStop, byteStop)
	}
	return r, err
}

// choice reads a byte that is one of two and says whether it was the first.
func (d *decoder) choice(what string, yes, no byte) (bool, error) {
	b, err := d.r.ReadByte()
	if err == nil && b != yes && b != no {
		err = fmt.Errorf("%w: %s was answered with %d", ErrProtocol, what, b)
	}
	return b == yes, err
}

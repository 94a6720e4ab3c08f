package file

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
)

// The log of PyTorch's FileStore: records of a u32 key length, the key, a u32 value length and the
// value, little-endian. Users' keys begin with a slash; the bookkeeping's are a name and a slash. A
// key that begins with a minus sign is a tombstone: what follows the sign is the key that is
// deleted.
//
// PyTorch has no queues, and no change of several keys at once. Here they are tombstones of keys
// that nobody has, with a value, to which PyTorch's processes pay no attention: -push/k and -pop/k
// for the queue of the user's key k, and -multi/ for a change of several, whose ordinary records
// follow it for PyTorch's sake.
const (
	filePrefix   = "/"
	tombstone    = "-"
	pushPrefix   = "-push"
	popPrefix    = "-pop"
	batchKey     = "-multi/"
	recordHead   = 4
	longestName  = 64 // of the bookkeeping
	mostVarBytes = 2 * binary.MaxVarintLen32
)

// record is one entry of the log.
type record struct {
	key   string
	value []byte
}

func (r record) size() int64 { return int64(2*recordHead + len(r.key) + len(r.value)) }

func appendRecord(b []byte, key string, value []byte) []byte {
	b = append(binary.LittleEndian.AppendUint32(b, uint32(len(key))), key...)
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(value))), value...)
}

func appendPairs(b []byte, pairs []kv.Pair) []byte {
	for _, p := range pairs {
		b = appendRecord(b, p.Key, p.Value)
	}
	return b
}

// appendBatch is the record of a change of several keys. It says all, so a reader that knows it
// needs no other. Its lengths are no u32s, so that a piece of it is not taken for records.
func appendBatch(b []byte, pairs []kv.Pair) []byte {
	var all []byte
	for _, p := range pairs {
		for _, s := range [][]byte{[]byte(p.Key), p.Value} {
			all = append(binary.AppendUvarint(all, uint64(len(s))), s...)
		}
	}
	return appendRecord(b, batchKey, all)
}

// splitBatch is the opposite of appendBatch. The pairs share the value's memory.
func splitBatch(value []byte, limits kv.Limits) (pairs []kv.Pair, err error) {
	field := func() []byte {
		n, head := binary.Uvarint(value)
		if head <= 0 || n > uint64(len(value)-head) {
			err = errors.New("a change of several keys that does not fill its record")
			return nil
		}
		s := value[head : head+int(n) : head+int(n)]
		value = value[head+int(n):]
		return s
	}
	for len(value) > 0 && err == nil {
		key := field()
		switch {
		case err != nil:
		case len(pairs) == limits.Keys:
			err = fmt.Errorf("%w: a change of more than %d keys", kv.ErrTooLarge, limits.Keys)
		case !bytes.HasPrefix(key, []byte(filePrefix)):
			err = errors.New("a change of several keys of which one is no user's")
		default:
			pairs = append(pairs, kv.Pair{Key: string(key), Value: field()})
		}
	}
	if err != nil {
		return nil, err
	}
	return pairs, nil
}

// command is what a record does to a state, whose keys are the log's.
func (r record) command(limits kv.Limits) (cmd state.Command, err error) {
	var queue, key string
	switch {
	case r.key == batchKey:
		cmd.Op = state.OpMultiSet
		cmd.Pairs, err = splitBatch(r.value, limits)
	case cutKey(r.key, pushPrefix, &queue):
		cmd = state.Command{Op: state.OpPush, Key: queue, Value: r.value}
	case cutKey(r.key, popPrefix, &queue):
		cmd = state.Command{Op: state.OpPop, Key: queue}
	case cutKey(r.key, tombstone, &key):
		cmd = state.Command{Op: state.OpDelete, Key: key}
	default:
		cmd = state.Command{Op: state.OpSet, Key: r.key, Value: r.value}
	}
	for _, k := range cmd.Names() {
		if len(k) > limits.Key && err == nil {
			err = fmt.Errorf("%w: a key of %d bytes, at most %d allowed", kv.ErrTooLarge, len(k), limits.Key)
		}
	}
	for _, p := range cmd.Pairs {
		if err == nil {
			err = kv.CheckValue(limits, p.Value)
		}
	}
	if err != nil {
		return state.Command{}, fmt.Errorf("%w: %w", kv.ErrCorrupt, err)
	}
	return cmd, nil
}

// cutKey takes prefix from key if the rest is a key, too.
func cutKey(key, prefix string, rest *string) bool {
	if len(key) <= len(prefix) || key[:len(prefix)] != prefix || prefix != tombstone && key[len(prefix)] != filePrefix[0] {
		return false
	}
	*rest = key[len(prefix):]
	return true
}

// isKey says whether a log may have the key; of one that breaks off, whether it may have begun so.
func isKey(key []byte, whole bool) bool {
	name, deleted := bytes.CutPrefix(key, []byte(tombstone))
	slash := bytes.IndexByte(name[:min(len(name), longestName+1)], filePrefix[0])
	switch {
	case slash == 0:
		return true // a user's
	case slash < 0 && (whole || len(name) > longestName):
		return false
	case slash >= 0:
		bookkeeping := slash == len(name)-1
		queue := deleted && (bytes.HasPrefix(key, []byte(pushPrefix+filePrefix)) || bytes.HasPrefix(key, []byte(popPrefix+filePrefix)))
		if !bookkeeping && !queue {
			return false
		}
		name = name[:slash]
	}
	return !bytes.ContainsFunc(name, func(c rune) bool { return c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9') })
}

// longest is how long a key may be, and a value.
func longestKey(l kv.Limits) int { return l.Key + len(pushPrefix) }

func longestValue(l kv.Limits, key string) int {
	if key == batchKey {
		return 2*l.Value + mostVarBytes*l.Keys
	}
	return l.Value
}

// errTorn is the end of a log in the middle of a record.
var errTorn = errors.New("torn record")

// logReader reads records from the rest of a file, of which left bytes are left.
type logReader struct {
	r      *bufio.Reader
	left   int64
	limits kv.Limits
	head   [recordHead]byte
}

// scan gives the records of the file between two offsets to visit, and returns where the whole ones
// end: a record that breaks off is the work of a writer that died. What is no record is ErrCorrupt,
// with its offset. Memory is allocated only for what the file has.
func scan(file io.ReaderAt, from, to int64, limits kv.Limits, visit func(record) error) (end int64, err error) {
	l := &logReader{r: bufio.NewReaderSize(io.NewSectionReader(file, from, to-from), 64<<10), left: to - from, limits: limits}
	for end = from; l.left > 0; {
		rec, err := l.next()
		if err == nil {
			err = visit(rec)
		}
		switch {
		case errors.Is(err, errTorn):
			return end, nil
		case err != nil:
			return end, fmt.Errorf("record at byte %d: %w", end, err)
		}
		end += rec.size()
	}
	return end, nil
}

func (l *logReader) next() (record, error) {
	key, err := l.field("key", longestKey(l.limits), isKey)
	if err != nil {
		return record{}, err
	}
	value, err := l.field("value", longestValue(l.limits, string(key)), nil)
	return record{string(key), value}, err
}

// field reads a length and as many bytes. ok, unless nil, looks at what is there of them.
func (l *logReader) field(what string, most int, ok func(b []byte, whole bool) bool) ([]byte, error) {
	torn := l.left < recordHead
	clear(l.head[:])
	if err := l.read(l.head[:min(l.left, recordHead)]); err != nil {
		return nil, err
	}
	n := int64(binary.LittleEndian.Uint32(l.head[:])) // at least, if it is torn
	switch {
	case n > int64(most):
		return nil, fmt.Errorf("%w: %w: a %s of %d bytes, at most %d allowed", kv.ErrCorrupt, kv.ErrTooLarge, what, n, most)
	case torn || ok == nil && n > l.left:
		return nil, errTorn
	}
	b := make([]byte, min(n, l.left))
	if err := l.read(b); err != nil {
		return nil, err
	}
	if whole := int64(len(b)) == n; ok != nil && !ok(b, whole) {
		return nil, fmt.Errorf("%w: a store has no %s %q", kv.ErrCorrupt, what, kv.Clip(string(b)))
	} else if !whole {
		return nil, errTorn
	}
	return b, nil
}

// read fills b, for which there is enough left, unless somebody cuts the file who has no lock.
func (l *logReader) read(b []byte) error {
	n, err := io.ReadFull(l.r, b)
	l.left -= int64(n)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errTorn
	}
	return err
}

// hidesRecord says whether a record begins somewhere in b, but not at its beginning, and ends where
// b does. Then b is not what is left of one record: somebody has appended behind it, as PyTorch's
// processes do, or its length is wrong.
func hidesRecord(b []byte, limits kv.Limits) bool {
	for at := 1; at < len(b)-2*recordHead; at++ {
		key := int64(binary.LittleEndian.Uint32(b[at:]))
		value := int64(at+recordHead) + key // where its length is
		if key > int64(longestKey(limits)) || value+recordHead > int64(len(b)) {
			continue
		}
		n := int64(binary.LittleEndian.Uint32(b[value:]))
		if value+recordHead+n == int64(len(b)) && isKey(b[at+recordHead:value], true) {
			return true
		}
	}
	return false
}

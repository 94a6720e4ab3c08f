package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The log of PyTorch's FileStore: records of a u32 key length, the key, a u32 value length and the value,
// little-endian. Users' keys begin with a slash. A key that begins with a minus sign is a tombstone: what follows the
// sign is the key that is deleted.
const (
	filePrefix = "/"
	tombstone  = "-"
	recordHead = 4
)

func appendRecord(b []byte, key string, value []byte) []byte {
	b = append(binary.LittleEndian.AppendUint32(b, uint32(len(key))), key...)
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(value))), value...)
}

// replay reads records until the end and applies them to data. It returns the length of the whole records: a record
// that breaks off is the work of a writer that died, and is not there. Lengths beyond the limits mean that this is no
// log: ErrProtocol.
func replay(r io.Reader, limits Limits, data map[string][]byte) (int64, error) {
	d := &decoder{r: bufio.NewReaderSize(r, 64<<10), limits: limits}
	for n := int64(0); ; {
		key, err := d.field(limits.Key+len(tombstone), "key")
		var value []byte
		if err == nil {
			value, err = d.field(limits.Value, "value")
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return n, nil
		case errors.Is(err, ErrTooLarge):
			return n, fmt.Errorf("%w: this is no log of a store: record at byte %d: %w", ErrProtocol, n, err)
		case err != nil:
			return n, err
		}
		n += int64(2*recordHead + len(key) + len(value))
		if deleted, ok := strings.CutPrefix(string(key), tombstone); ok {
			delete(data, deleted)
		} else {
			data[string(key)] = value
		}
	}
}

func (d *decoder) field(most int, what string) ([]byte, error) {
	head := d.scratch[:recordHead]
	if _, err := io.ReadFull(d.r, head); err != nil {
		return nil, err
	}
	return d.exactly(uint64(binary.LittleEndian.Uint32(head)), most, what)
}

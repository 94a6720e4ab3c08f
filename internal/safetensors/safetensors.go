package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
)

// ErrFormat is matched by errors for what is no file of tensors, and for tensors that no file can
// hold.
var ErrFormat = errors.New("not a valid safetensors file")

// Info is what a header says of one tensor.
type Info struct {
	DType string `json:"dtype"` // one of those that bits knows
	Shape []int  `json:"shape"` // empty of a scalar
}

// Tensor is a tensor with its bytes, little-endian, row by row.
type Tensor struct {
	Name string
	Info
	Data []byte
}

// MaxHeader bounds the header, as the library of that name does.
const MaxHeader = 100_000_000

// metadata is the name in the header that is no tensor's.
const metadata = "__metadata__"

// entry is a tensor in the header.
type entry struct {
	Info
	Offsets [2]int64 `json:"data_offsets"`
}

// bits are those of an element of a dtype, 0 for one that is not known.
func bits(dtype string) int64 {
	switch dtype {
	case "F64", "I64", "U64", "C64":
		return 64
	case "F32", "I32", "U32":
		return 32
	case "F16", "BF16", "I16", "U16":
		return 16
	case "I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0":
		return 8
	case "F6_E2M3", "F6_E3M2":
		return 6
	case "F4":
		return 4
	}
	return 0
}

// Bits is the number of bits of a tensor.
func (i Info) Bits() (int64, error) {
	n := bits(i.DType)
	if n == 0 {
		return 0, fmt.Errorf("%w: unknown dtype %q", ErrFormat, clip(i.DType))
	}
	for _, d := range i.Shape {
		if d < 0 || d > 0 && n > math.MaxInt64/int64(d) {
			return 0, fmt.Errorf("%w: a shape of %v", ErrFormat, i.Shape)
		}
		n *= int64(d)
	}
	return n, nil
}

// Bytes is the number of bytes of a tensor.
func (i Info) Bytes() (int64, error) {
	n, err := i.Bits()
	if err == nil && n%8 != 0 {
		err = fmt.Errorf("%w: %v of %s is no whole number of bytes", ErrFormat, i.Shape, i.DType)
	}
	return n / 8, err
}

// Write writes tensors, sorted by name, with what people want to note beside them.
func Write(w io.Writer, tensors []Tensor, notes map[string]string) error {
	tensors = slices.SortedFunc(slices.Values(tensors), func(a, b Tensor) int { return cmp.Compare(a.Name, b.Name) })
	header, at := map[string]any{}, int64(0)
	if len(notes) > 0 {
		header[metadata] = notes
	}
	for _, t := range tensors {
		n, err := t.Bytes()
		switch _, twice := header[t.Name]; {
		case err != nil:
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		case n != int64(len(t.Data)):
			return fmt.Errorf("%w: tensor %q has %d bytes, and its shape %v of %s is %d", ErrFormat, t.Name, len(t.Data), t.Shape, t.DType, n)
		case twice || t.Name == metadata:
			return fmt.Errorf("%w: the name %q is taken", ErrFormat, t.Name)
		}
		if t.Shape == nil {
			t.Shape = []int{}
		}
		header[t.Name] = entry{t.Info, [2]int64{at, at + n}}
		at += n
	}
	text, err := json.Marshal(header)
	if err == nil && len(text) > MaxHeader {
		err = fmt.Errorf("a header of %d bytes, at most %d allowed", len(text), MaxHeader)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	for len(text)%8 != 0 { // the tensors begin at a multiple of 8
		text = append(text, ' ')
	}
	if _, err := w.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)); err != nil {
		return err
	}
	for _, t := range tensors {
		if _, err := w.Write(t.Data); err != nil {
			return err
		}
	}
	return nil
}

// File is a file that was opened for reading. It is safe for concurrent use if its reader is.
type File struct {
	Notes map[string]string

	r       io.ReaderAt
	start   int64 // of the tensors' bytes
	entries map[string]entry
}

// Open reads and checks the header of a file of size bytes.
func Open(r io.ReaderAt, size int64) (*File, error) {
	bad := func(format string, args ...any) (*File, error) {
		return nil, fmt.Errorf("%w: %w", ErrFormat, fmt.Errorf(format, args...))
	}
	var length [8]byte
	if size < 8 {
		return bad("it has %d bytes, and 8 are the least", size)
	}
	if _, err := r.ReadAt(length[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > MaxHeader || int64(n) > size-8 {
		return bad("a header of %d bytes in a file of %d; at most %d are allowed", n, size, MaxHeader)
	}
	text := make([]byte, n)
	if _, err := r.ReadAt(text, 8); err != nil && (n > 0 || !errors.Is(err, io.EOF)) {
		return nil, err
	}
	f := &File{r: r, start: 8 + int64(n), entries: map[string]entry{}}
	if err := f.header(text); err != nil {
		return bad("the header: %w", err)
	}
	if err := f.layout(size - f.start); err != nil {
		return bad("%w", err)
	}
	return f, nil
}

// header reads the JSON. A name that is there twice is refused, of which encoding/json would keep
// the last.
func (f *File) header(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') || text[0] != '{' {
		return fmt.Errorf("expected an object: %w", cmp.Or(err, ErrFormat))
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := t.(string)
		if name == metadata {
			if f.Notes != nil {
				return errors.New("two notes")
			}
			f.Notes = map[string]string{}
			if err := d.Decode(&f.Notes); err != nil {
				return err
			}
			continue
		}
		if _, twice := f.entries[name]; twice {
			return fmt.Errorf("two tensors are called %q", clip(name))
		}
		var e entry
		if err := d.Decode(&e); err != nil {
			return fmt.Errorf("tensor %q: %w", clip(name), err)
		}
		f.entries[name] = e
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	if rest := bytes.TrimRight(text[d.InputOffset():], " "); len(rest) > 0 {
		return errors.New("there is something after it")
	}
	return nil
}

// layout checks that the tensors fill size bytes without gaps or overlaps.
func (f *File) layout(size int64) error {
	names := slices.SortedFunc(maps.Keys(f.entries), func(a, b string) int {
		x, y := f.entries[a].Offsets, f.entries[b].Offsets
		return cmp.Or(cmp.Compare(x[0], y[0]), cmp.Compare(x[1], y[1]))
	})
	at := int64(0)
	for _, name := range names {
		e := f.entries[name]
		n, err := e.Bytes()
		switch {
		case err != nil:
			return fmt.Errorf("tensor %q: %w", clip(name), err)
		case e.Offsets[0] != at || n > size-at || e.Offsets[1] != at+n:
			return fmt.Errorf("tensor %q of %d bytes lies at %v, expected from %d on, up to %d", clip(name), n, e.Offsets, at, size)
		}
		at += n
	}
	if at != size {
		return fmt.Errorf("the tensors have %d bytes, and the file has %d for them", at, size)
	}
	return nil
}

// Head is the number of bytes before the tensors': the header and its length.
func (f *File) Head() int64 { return f.start }

// Names are the tensors' names, sorted.
func (f *File) Names() []string { return slices.Sorted(maps.Keys(f.entries)) }

// Info says what a tensor is.
func (f *File) Info(name string) (Info, bool) {
	e, there := f.entries[name]
	return e.Info, there
}

// ReadAt reads len(b) bytes of a tensor from the byte at on.
func (f *File) ReadAt(name string, b []byte, at int64) error {
	e, there := f.entries[name]
	if !there {
		return fmt.Errorf("%w: there is no tensor %q", ErrFormat, name)
	}
	if at < 0 || at > e.Offsets[1]-e.Offsets[0]-int64(len(b)) {
		return fmt.Errorf("%w: tensor %q has no bytes %d to %d", ErrFormat, name, at, at+int64(len(b)))
	}
	if len(b) == 0 {
		return nil
	}
	if n, err := f.r.ReadAt(b, f.start+e.Offsets[0]+at); n < len(b) {
		return fmt.Errorf("tensor %q: %w", name, err)
	}
	return nil
}

func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

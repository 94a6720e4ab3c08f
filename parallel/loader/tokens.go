package loader

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"sync"
)

// Tokens says what is in a file of tokens: numbers of Width bytes, little-endian, one behind the
// other. It is cut into sequences of Length tokens; each begins Stride after the one before. Where
// each token is to be learned from those before it, Length is one more than Stride. What is left at
// the end is no sequence.
type Tokens struct {
	Width  int // 2 or 4
	Length int
	Stride int // Length if 0
}

// Sequences is a file of tokens, mapped into memory: a source whose rows are its sequences. Close
// ends the mapping.
type Sequences struct {
	file string
	of   Tokens
	n    int

	mu     sync.RWMutex // held for writing by Close
	raw    []byte
	unmap  func() error
	closed bool
}

// OpenTokens maps a file. Errors are of type FileError, or ErrConfig.
func OpenTokens(file string, of Tokens) (*Sequences, error) {
	if of.Stride == 0 {
		of.Stride = of.Length
	}
	if of.Width != 2 && of.Width != 4 || of.Length <= 0 || of.Stride < 0 {
		return nil, fmt.Errorf("loader: OpenTokens: %w: tokens of %d bytes, %d in a sequence, each %d after the other; expected 2 or 4 bytes, and 1 or more",
			ErrConfig, of.Width, of.Length, of.Stride)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, &FileError{File: file, Err: err}
	}
	defer f.Close() //nolint:errcheck // the mapping stays
	info, err := f.Stat()
	if err != nil {
		return nil, &FileError{File: file, Err: err}
	}
	size := info.Size()
	switch tokens := size / int64(of.Width); {
	case !info.Mode().IsRegular() || size > math.MaxInt:
		return nil, &FileError{File: file, Err: errors.New("expected a file that can be mapped")}
	case size%int64(of.Width) != 0:
		return nil, &FileError{File: file, Err: fmt.Errorf("%d bytes; expected tokens of %d", size, of.Width)}
	case tokens < int64(of.Length):
		return nil, &FileError{File: file, Err: fmt.Errorf("%d tokens; expected a sequence of %d at least", tokens, of.Length)}
	}
	s := &Sequences{file: file, of: of, n: (int(size)/of.Width-of.Length)/of.Stride + 1}
	if s.raw, s.unmap, err = mapped(f, int(size)); err != nil {
		return nil, &FileError{File: file, Err: err}
	}
	return s, nil
}

// Len is the number of sequences.
func (s *Sequences) Len() int { return s.n }

// At copies a sequence.
func (s *Sequences) At(row int) (tokens []int32, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, &FileError{File: s.file, Err: ErrClosed}
	}
	if row < 0 || row >= s.n {
		return nil, &FileError{File: s.file, Err: fmt.Errorf("sequence %d of %d", row, s.n)}
	}
	// A file that has become shorter since it was mapped cannot be read.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			tokens, err = nil, &FileError{File: s.file, Err: fmt.Errorf("sequence %d cannot be read; the file may have become shorter: %v", row, p)}
		}
	}()
	first := row * s.of.Stride
	raw := s.raw[first*s.of.Width:][:s.of.Length*s.of.Width]
	tokens = make([]int32, s.of.Length)
	for i := range tokens {
		if s.of.Width == 2 {
			tokens[i] = int32(binary.LittleEndian.Uint16(raw[2*i:]))
			continue
		}
		v := binary.LittleEndian.Uint32(raw[4*i:])
		if v > math.MaxInt32 {
			return nil, &FileError{File: s.file, Err: fmt.Errorf("token %d is %d; expected %d at most", first+i, v, math.MaxInt32)}
		}
		tokens[i] = int32(v)
	}
	return tokens, nil
}

// Close ends the mapping, when nobody reads. It may be called again.
func (s *Sequences) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed, s.raw = true, nil
	if err := s.unmap(); err != nil {
		return &FileError{File: s.file, Err: err}
	}
	return nil
}

package loader

import (
	"bufio"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
)

// mostValues bounds a table.
const mostValues = 1 << 30

// CSV is a table of numbers in memory: a source whose rows are its lines.
type CSV struct {
	Columns int
	values  []float64
	lines   []int32 // of each row
}

// OpenCSV reads a file of numbers, which may be compressed by gzip: see [ReadCSV].
func OpenCSV(file string) (*CSV, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, &FileError{File: file, Err: err}
	}
	defer f.Close() //nolint:errcheck // it was only read
	return ReadCSV(file, f)
}

// ReadCSV reads a table, plain or compressed by gzip. Numbers are finite, and all lines have as
// many of them. A first line without any number is a heading; lines that begin with # are comments.
// The file's name is for errors, which are of type FileError.
func ReadCSV(file string, raw io.Reader) (*CSV, error) {
	text, err := unpacked(raw)
	if err != nil {
		return nil, &FileError{File: file, Err: err}
	}
	in := csv.NewReader(text)
	in.ReuseRecord, in.TrimLeadingSpace, in.Comment = true, true, '#'
	t := &CSV{}
	line := 0
	for first := true; ; first = false {
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = fmt.Errorf("the file is truncated after this line: %w", err)
			}
			if bad := (*csv.ParseError)(nil); errors.As(err, &bad) {
				line = bad.Line
			}
			return nil, &FileError{File: file, Line: line, Err: err}
		}
		line, _ = in.FieldPos(0)
		numbers, err := t.addRow(record)
		if first && numbers == 0 && len(record) > 1 {
			t.values = t.values[:0]
			continue
		}
		if err != nil {
			return nil, &FileError{File: file, Line: line, Err: err}
		}
		t.lines = append(t.lines, int32(min(line, math.MaxInt32)))
	}
}

// unpacked is the text, without its compression.
func unpacked(raw io.Reader) (io.Reader, error) {
	in := bufio.NewReader(raw)
	if magic, err := in.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		return gzip.NewReader(in)
	}
	return in, nil
}

// addRow puts in a row, and counts its numbers.
func (t *CSV) addRow(record []string) (numbers int, err error) {
	t.Columns = len(record)
	for i, s := range record {
		v, perr := strconv.ParseFloat(s, 64)
		if perr != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			if err == nil {
				err = fmt.Errorf("column %d: %q; expected a number", i+1, s)
			}
			continue
		}
		numbers++
		t.values = append(t.values, v)
	}
	if err == nil && len(t.values) > mostValues {
		err = fmt.Errorf("more than %d values", mostValues)
	}
	return numbers, err
}

// Len is the number of rows.
func (t *CSV) Len() int { return len(t.lines) }

// At is a row, to be read.
func (t *CSV) At(row int) ([]float64, error) {
	if row < 0 || row >= t.Len() {
		return nil, fmt.Errorf("%w: row %d of %d", ErrData, row, t.Len())
	}
	return t.values[row*t.Columns:][:t.Columns:t.Columns], nil
}

// Line is where a row stands in its file, for errors.
func (t *CSV) Line(row int) int { return int(t.lines[row]) }

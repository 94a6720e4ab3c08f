// Package table is data for the example programs: a table of numbers whose last column is a class,
// from a file or built in.
package table

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"

	"github.com/weft-project/weft/autodiff"
)

// builtin are 1,797 handwritten digits of 8×8 grey values from 0 to 16: Optical Recognition of
// Handwritten Digits, E. Alpaydin and C. Kaynak (1998), UCI Machine Learning Repository,
// https://doi.org/10.24432/C50P49, licence CC BY 4.0.
//
//go:embed data/digits.csv.gz
var builtin []byte

// ErrData wraps everything that is wrong with a data file.
var ErrData = errors.New("bad data")

// DataError says where in which file.
type DataError struct {
	File string
	Line int // 0: the file as a whole
	Err  error
}

func (e *DataError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v: %v", e.File, ErrData, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v: %v", e.File, e.Line, ErrData, e.Err)
}

// Unwrap lets errors.Is find ErrData and the cause.
func (e *DataError) Unwrap() []error { return []error{ErrData, e.Err} }

// Part is examples: rows of features and their classes.
type Part struct {
	X [][]float32
	Y []int32
}

// Data is a table split into train and test.
type Data struct {
	Train, Test       Part
	Features, Classes int
}

// testShare of the rows is for the test.
const testShare = 0.2

// maxValues bounds a data file.
const maxValues = 1 << 27

// Load reads a file, or the built-in digits, and splits it as the seed says.
func Load(file string, seed uint64) (*Data, error) {
	var raw io.Reader = bytes.NewReader(builtin)
	if file == "" {
		file = "built-in digits"
	} else {
		f, err := os.Open(file)
		if err != nil {
			return nil, &DataError{File: file, Err: err}
		}
		defer f.Close() //nolint:errcheck // it was only read
		raw = f
	}
	rows, err := read(file, raw)
	if err != nil {
		return nil, err
	}
	return split(file, rows, seed)
}

// read parses the table. A first line without any number is a heading.
func read(file string, raw io.Reader) ([][]float64, error) {
	in := bufio.NewReader(raw)
	var text io.Reader = in
	if magic, err := in.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, &DataError{File: file, Err: err}
		}
		text = z
	}
	table := csv.NewReader(text)
	table.ReuseRecord, table.TrimLeadingSpace, table.Comment = true, true, '#'
	var rows [][]float64
	values, line := 0, 0
	for first := true; ; first = false {
		record, err := table.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = fmt.Errorf("the file is truncated after this line: %w", err)
			}
			if bad := (*csv.ParseError)(nil); errors.As(err, &bad) {
				line = bad.Line
			}
			return nil, &DataError{File: file, Line: line, Err: err}
		}
		line, _ = table.FieldPos(0)
		row, numbers, err := parseRow(record)
		if first && numbers == 0 && len(record) > 1 {
			continue
		}
		if values += len(record); err == nil && values > maxValues {
			err = fmt.Errorf("more than %d values", maxValues)
		}
		if err != nil {
			return nil, &DataError{File: file, Line: line, Err: err}
		}
		rows = append(rows, row)
	}
}

func parseRow(record []string) (row []float64, numbers int, err error) {
	if len(record) < 2 {
		return nil, 0, errors.New("expected at least one feature and a class")
	}
	row = make([]float64, len(record))
	for i, s := range record {
		v, perr := strconv.ParseFloat(s, 64)
		if perr != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			if err == nil {
				err = fmt.Errorf("column %d: %q; expected a number", i+1, s)
			}
			continue
		}
		numbers++
		row[i] = v
	}
	if class := row[len(row)-1]; err == nil && class != math.Trunc(class) {
		err = fmt.Errorf("column %d: class %v; expected a whole number", len(row), class)
	}
	return row, numbers, err
}

// split shuffles by the seed, scales the columns by the range of the training part, and numbers the
// classes in order.
func split(file string, rows [][]float64, seed uint64) (*Data, error) {
	tests := int(math.Round(testShare * float64(len(rows))))
	if tests < 1 || len(rows)-tests < 2 {
		return nil, &DataError{File: file, Err: fmt.Errorf("%d rows are too few to split into train and test", len(rows))}
	}
	columns := len(rows[0]) - 1
	classes := classesOf(rows)
	if len(classes) < 2 || len(classes) > 4096 {
		return nil, &DataError{File: file, Err: fmt.Errorf("%d different classes in the last column; expected 2 to 4096", len(classes))}
	}
	order := rand.New(rand.NewPCG(seed, 1)).Perm(len(rows))
	d := &Data{Features: columns, Classes: len(classes)}
	low, scale := ranges(rows, order[tests:], columns)
	for i, at := range order {
		into := &d.Train
		if i < tests {
			into = &d.Test
		}
		x := make([]float32, columns)
		for j := range x {
			x[j] = float32((rows[at][j] - low[j]) * scale[j])
		}
		class, _ := slices.BinarySearch(classes, rows[at][columns])
		into.X, into.Y = append(into.X, x), append(into.Y, int32(class))
	}
	return d, nil
}

func classesOf(rows [][]float64) []float64 {
	var all []float64
	for _, r := range rows {
		all = append(all, r[len(r)-1])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// ranges gives each column's minimum and 1/(maximum − minimum) over the training rows; a constant
// column becomes 0.
func ranges(rows [][]float64, train []int, columns int) (low, scale []float64) {
	low, scale = make([]float64, columns), make([]float64, columns)
	for j := range low {
		lo, hi := math.Inf(1), math.Inf(-1)
		for _, at := range train {
			lo, hi = min(lo, rows[at][j]), max(hi, rows[at][j])
		}
		low[j] = lo
		if hi > lo {
			scale[j] = 1 / (hi - lo)
		}
	}
	return low, scale
}

// Batch makes tensors of the examples at the given places.
func (p *Part) Batch(at []int) (x, y *autodiff.Tensor) {
	var xs []float32
	var ys []int32
	for _, i := range at {
		xs, ys = append(xs, p.X[i]...), append(ys, p.Y[i])
	}
	return autodiff.New(xs, len(at), len(p.X[0])), autodiff.New(ys)
}

// All makes tensors of the whole part.
func (p *Part) All() (x, y *autodiff.Tensor) {
	at := make([]int, len(p.Y))
	for i := range at {
		at[i] = i
	}
	return p.Batch(at)
}

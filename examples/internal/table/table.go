// Package table is data for the example programs: a table of numbers whose last column is a class,
// from a file or built in.
package table

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/parallel/loader"
)

// builtin are 1,797 handwritten digits of 8×8 grey values from 0 to 16: Optical Recognition of
// Handwritten Digits, E. Alpaydin and C. Kaynak (1998), UCI Machine Learning Repository,
// https://doi.org/10.24432/C50P49, licence CC BY 4.0.
//
//go:embed data/digits.csv.gz
var builtin []byte

// ErrData wraps everything that is wrong with a data file; a FileError says where.
var ErrData = loader.ErrData

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

// Load reads a file, or the built-in digits, and splits it as the seed says.
func Load(file string, seed uint64) (*Data, error) {
	var raw io.Reader = bytes.NewReader(builtin)
	if file == "" {
		file = "built-in digits"
	} else {
		f, err := os.Open(file)
		if err != nil {
			return nil, &loader.FileError{File: file, Err: err}
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

// read parses the table.
func read(file string, raw io.Reader) ([][]float64, error) {
	t, err := loader.ReadCSV(file, raw)
	if err != nil {
		return nil, err
	}
	rows := make([][]float64, t.Len())
	for i := range rows {
		row, err := t.At(i)
		if err == nil {
			err = checkRow(row)
		}
		if err != nil {
			return nil, &loader.FileError{File: file, Line: t.Line(i), Err: err}
		}
		rows[i] = row
	}
	return rows, nil
}

func checkRow(row []float64) error {
	if len(row) < 2 {
		return errors.New("expected at least one feature and a class")
	}
	if class := row[len(row)-1]; class != math.Trunc(class) {
		return fmt.Errorf("column %d: class %v; expected a whole number", len(row), class)
	}
	return nil
}

// split shuffles by the seed, scales the columns by the range of the training part, and numbers the
// classes in order.
func split(file string, rows [][]float64, seed uint64) (*Data, error) {
	tests := int(math.Round(testShare * float64(len(rows))))
	if tests < 1 || len(rows)-tests < 2 {
		return nil, &loader.FileError{File: file, Err: fmt.Errorf("%d rows are too few to split into train and test", len(rows))}
	}
	columns := len(rows[0]) - 1
	classes := classesOf(rows)
	if len(classes) < 2 || len(classes) > 4096 {
		return nil, &loader.FileError{File: file, Err: fmt.Errorf("%d different classes in the last column; expected 2 to 4096", len(classes))}
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

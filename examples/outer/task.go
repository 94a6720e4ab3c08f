package main

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/examples/internal/opticks"
	"github.com/weft-project/weft/examples/internal/table"
)

// task is what the workers learn.
type task struct {
	rows  int // to learn from
	model func(src *rand.Rand) nn.Layer
	pick  func(rows []int) (x, y *autodiff.Tensor)
	test  func() (x, y *autodiff.Tensor) // other rows
}

// newTask gives the handwritten digits, or the letters of a text.
func newTask(name string, seed uint64) (*task, error) {
	switch name {
	case "digits":
		return digits(seed)
	case "text":
		return letters(opticks.Text()[:textBytes])
	}
	return nil, fmt.Errorf("--data %q; expected digits or text", name)
}

func digits(seed uint64) (*task, error) {
	data, err := table.Load("", seed)
	if err != nil {
		return nil, err
	}
	return &task{
		rows:  len(data.Train.Y),
		model: func(src *rand.Rand) nn.Layer { return nn.NewMLP(src, autodiff.GELU, data.Features, 64, data.Classes) },
		pick:  data.Train.Batch,
		test:  data.Test.All,
	}, nil
}

const (
	textBytes = 200_000
	before    = 8    // letters by which the next one is foretold
	dim       = 16   // numbers for each
	testRows  = 4096 // at the end of the text
)

// foretell is a model of which letter comes after some others.
type foretell struct {
	Letters *nn.Embedding
	Rest    nn.Sequential
}

// Forward takes ids of shape [rows, before].
func (f foretell) Forward(ids *autodiff.Tensor) *autodiff.Tensor {
	return f.Rest.Forward(autodiff.Reshape(f.Letters.Forward(ids), ids.Shape()[0], before*dim))
}

func (f foretell) Params() []*autodiff.Tensor { return append(f.Letters.Params(), f.Rest.Params()...) }

// letters are the positions of a text, each with the letter that is there as its class.
func letters(text string) (*task, error) {
	text = strings.ToLower(text)
	numbers, ids := map[byte]int64{}, make([]int64, len(text))
	for i := range len(text) {
		if _, ok := numbers[text[i]]; !ok {
			numbers[text[i]] = int64(len(numbers))
		}
		ids[i] = numbers[text[i]]
	}
	if len(text) < before+2*testRows {
		return nil, fmt.Errorf("a text of %d bytes is too short", len(text))
	}
	batch := func(rows []int) (x, y *autodiff.Tensor) {
		var xs, ys []int64
		for _, row := range rows {
			xs, ys = append(xs, ids[row:row+before]...), append(ys, ids[row+before])
		}
		return autodiff.New(xs, len(rows), before), autodiff.New(ys)
	}
	rows := len(text) - before - testRows
	return &task{
		rows: rows,
		model: func(src *rand.Rand) nn.Layer {
			return foretell{nn.NewEmbedding(src, len(numbers), dim), nn.NewMLP(src, autodiff.GELU, before*dim, 64, len(numbers))}
		},
		pick: batch,
		test: func() (x, y *autodiff.Tensor) {
			last := make([]int, testRows)
			for i := range last {
				last[i] = rows + i
			}
			return batch(last)
		},
	}, nil
}

// loss is the mean over some rows.
func (t *task) loss(model nn.Layer, rows []int, owner *autodiff.Arena) (*autodiff.Tensor, error) {
	x, y := t.pick(rows)
	return lossOf(model, x, y, owner)
}

func lossOf(model nn.Layer, x, y *autodiff.Tensor, owner *autodiff.Arena) (*autodiff.Tensor, error) {
	for _, in := range []*autodiff.Tensor{x, y} {
		if err := owner.Adopt(in); err != nil {
			return nil, err
		}
	}
	return autodiff.CrossEntropy(model.Forward(x), y), nil
}

// tested is the loss, and the share that is right, of the rows that nobody learns from.
func (t *task) tested(model nn.Layer) (loss, right float64, err error) {
	owner := autodiff.NewArena("test")
	defer owner.Free()
	x, y := t.test()
	l, err := lossOf(model, x, y, owner)
	if err != nil {
		return 0, 0, err
	}
	if loss, err = l.Item(); err != nil {
		return 0, 0, err
	}
	right, err = nn.Accuracy(model.Forward(x), y)
	return loss, right, err
}

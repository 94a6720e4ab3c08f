package nn

import (
	"compress/gzip"
	"encoding/csv"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/kernels"
)

// digits reads the digits of the examples: images of 8×8 and their classes.
func digits(t *testing.T) (images []float32, classes []int32) {
	f, err := os.Open("../../examples/internal/table/data/digits.csv.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	rows, err := csv.NewReader(z).ReadAll()
	require.NoError(t, err)
	for _, row := range rows {
		require.Len(t, row, 65)
		if _, err := strconv.ParseFloat(row[0], 64); err != nil {
			continue // the heading
		}
		for _, s := range row[:64] {
			v, err := strconv.ParseFloat(s, 32)
			require.NoError(t, err)
			images = append(images, float32(v/16))
		}
		class, err := strconv.ParseFloat(row[64], 64)
		require.NoError(t, err)
		classes = append(classes, int32(class))
	}
	return images, classes
}

// train takes some steps over the first digits and gives the loss of the last, and the share of the
// last 300 digits that it recognises then.
func train(t *testing.T, images []float32, classes []int32, steps int) (loss, share float64) {
	src := rng(11)
	net := Sequential{
		NewConv2d(src, 1, 8, kernels.Square(3, 1, 1)), NewBatchNorm(8), Activation(autodiff.ReLU), MaxPool2d{kernels.Square(2, 2, 0)},
		NewConv2d(src, 8, 16, kernels.Square(3, 1, 1)), Activation(autodiff.ReLU), AvgPool2d{Over: kernels.Square(2, 2, 0)},
		Flatten{}, NewDropout(src, 0.1), NewLinear(src, 16*4, 10),
	}
	const batch, held = 32, 300
	n := len(classes) - held
	for k := range steps {
		at := k * batch % (n - batch)
		arena := autodiff.NewArena("step")
		x := autodiff.New(images[at*64:(at+batch)*64], batch, 1, 8, 8)
		require.NoError(t, arena.Adopt(x))
		l := CrossEntropy(net.Forward(x), autodiff.New(classes[at:at+batch]))
		g, err := autodiff.Backward(l)
		require.NoError(t, err)
		for _, p := range net.Params() {
			require.NoError(t, autodiff.Apply(kernels.Update{Rule: kernels.SGD, LR: 0.4, Step: 1}, []*autodiff.Tensor{p, g.Of(p)}, 0))
		}
		loss, err = l.Item()
		require.NoError(t, err)
		g.Free()
		arena.Free()
	}
	Eval(net)
	share, err := Accuracy(net.Forward(autodiff.New(images[n*64:], held, 1, 8, 8)), autodiff.New(classes[n:]))
	require.NoError(t, err)
	return loss, share
}

func TestAConvolutionalNetLearnsTheDigits(t *testing.T) {
	images, classes := digits(t)
	loss, share := train(t, images, classes, 150)
	require.Greater(t, share, 0.9, "loss %v, share %v", loss, share)
	short, again := make([]float64, 2), make([]float64, 2)
	short[0], short[1] = train(t, images, classes, 5)
	again[0], again[1] = train(t, images, classes, 5)
	require.Equal(t, short, again, "one seed, one course")
}

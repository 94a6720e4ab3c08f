package compile

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff/internal/expr"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

const all = 1 << 16

// fitted is a function of a batch of all rows that calls note for each body that is drawn.
func fitted(t *testing.T, grads bool, note func(rows int) error) *Function {
	c, err := New(Spec{
		Name: "rows", Device: device.Host(), Wrap: func(_ string, err error) error { return err },
		In: []Input{{Type: kernels.Type{Dtype: device.Float32, Shape: device.Shape{all, 256}}, Need: grads}},
		Body: func(g *expr.Graph, in []*gorgonia.Node) []*gorgonia.Node {
			if err := note(g.Type(in[0]).Shape[0]); err != nil {
				g.Refuse(err)
				return nil
			}
			return []*gorgonia.Node{g.Apply(kernels.Reduce{}, g.Apply(kernels.Softmax{Axis: 1}, in[0]))}
		},
	})
	require.NoError(t, err)
	return c
}

func same(n int) int { return n }

func TestTheLargestBatchThatFitsIsFoundByAFewPlans(t *testing.T) {
	for _, grads := range []bool{false, true} {
		drawn := 0
		c := fitted(t, grads, func(int) error { drawn++; return nil })
		f := fitting{c: c, size: same}
		for want := 1; want < all; want = want*3 + 1 {
			need, err := f.need(c.spec.batches()[0], want)
			require.NoError(t, err)
			for _, more := range []int64{0, 100} { // of the bytes of a row
				drawn = 0
				require.Equal(t, answer{fits: want, had: all, known: true}, c.seek(need+more, same))
				require.LessOrEqual(t, drawn, 10)
			}
		}
	}
}

func TestABatchIsNotNamedWherePlansDoNotSayOne(t *testing.T) {
	c := fitted(t, false, func(int) error { return nil })
	_, _, known := c.Fits(1<<30, same)
	require.False(t, known, "by the plan it would have fitted")
	_, _, known = c.Fits(0, same)
	require.False(t, known, "not even one fits")

	odd := errors.New("not so many")
	c = fitted(t, false, func(rows int) error {
		if rows > 1 && rows < all {
			return fmt.Errorf("%w: %d", odd, rows)
		}
		return nil
	})
	need, err := (&fitting{c: c, size: same}).need(c.spec.batches()[0], 1)
	require.NoError(t, err)
	_, _, known = c.Fits(need+1000, same)
	require.False(t, known, "of what is between the body takes none")
}

func TestAProgramThatTriesAgainAndAgainHasAFewAnswers(t *testing.T) {
	drawn := 0
	c := fitted(t, true, func(int) error { drawn++; return nil })
	f := fitting{c: c, size: same}
	ask := func(rows int) (fits int, news bool) {
		need, err := f.need(c.spec.batches()[0], rows)
		require.NoError(t, err)
		drawn = 0
		fits, _, _ = c.Fits(need, same)
		return fits, drawn > 0
	}
	for _, q := range []struct {
		rows, fits int
		news       bool
	}{
		{100, 100, true}, {100, 100, false}, {101, 100, false}, {99, 99, true}, {800, 800, true}, {100, 100, false},
		{0, 0, true}, {400, 100, false}, {900, 800, false}, {98, 0, false}, {0, 0, false},
	} {
		fits, news := ask(q.rows)
		require.Equal(t, []any{q.fits, q.news}, []any{fits, news}, "%d rows", q.rows)
	}
}

func TestTheDimensionThatMostInputsHaveInCommonIsTriedFirst(t *testing.T) {
	var s Spec
	for _, n := range []int{10, 11, 12, 13, 14, 15, 16, 17, 18, 9, 27, 9} {
		s.In = append(s.In, Input{Type: kernels.Type{Dtype: device.Float32, Shape: device.Shape{n, 2}}})
	}
	all := s.batches()
	require.Len(t, all, mostBatches)
	require.Equal(t, batch{9, []int{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1}}, all[0])
	require.Equal(t, 10, all[1].had)
}

package kerneltest

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/internal/thresholds"
	"github.com/weft-project/weft/kernels"
)

// sized asks that what is drawn next has a size: once, for the first that asks.
type sized struct {
	unit thresholds.Unit
	n    int
	done bool
}

// exact says that only small whole numbers are drawn, of which also long sums are exact: rounding
// says nothing of a size.
func (s *sized) exact() bool { return s.unit == thresholds.Work || s.n > 150 }

// takeExtent gives the size to an axis that is drawn by itself.
func (s *sized) takeExtent() (n int, ok bool) {
	if s == nil || s.done || s.unit != thresholds.Extent {
		return 0, false
	}
	s.done = true
	return s.n, true
}

// takeShape gives the size to a shape of min axes or more: to one axis, or to all elements.
func (s *sized) takeShape(g gen, min int) (device.Shape, bool) {
	if s == nil || s.done || s.unit == thresholds.Work {
		return nil, false
	}
	s.done = true
	shape := device.Shape{s.n, 1 + g.IntN(3)}
	if s.unit == thresholds.Elems {
		a, b := g.factors(s.n)
		shape = device.Shape{a, b}
	}
	switch g.IntN(4) {
	case 0:
		slices.Reverse(shape)
	case 1:
		shape = slices.Insert(shape, 1, 1)
	case 2:
		if s.unit == thresholds.Extent && min < 2 {
			shape = shape[:1]
		}
	}
	return shape, true
}

// images gives the size to the pixels of a batch of images, or to its channels.
func (s *sized) images(g gen, shape device.Shape) {
	if s == nil || s.done {
		return
	}
	s.done = true
	switch s.unit {
	case thresholds.Extent:
		copy(shape, device.Shape{1, s.n, 1 + g.IntN(3), 1 + g.IntN(3)})
	case thresholds.Work: // of nine taps and a few channels
		copy(shape, device.Shape{1, 4, 1, 1})
		shape[2], shape[3] = g.factors(s.n / 36)
	default:
		copy(shape, device.Shape{1, 1, 1, 1})
		shape[2], shape[3] = g.factors(s.n)
	}
}

// factors are two numbers whose product is n, both more than 1 where there are such.
func (g gen) factors(n int) (a, b int) {
	all := []int{1}
	for d := 2; d*d <= n; d++ {
		if n%d == 0 {
			all = append(all, d)
		}
	}
	a = all[len(all)-1]
	if len(all) > 1 {
		a = all[1+g.IntN(len(all)-1)]
	}
	return a, n / a
}

// sizedMatMul has an extent of the size, or as much work.
func (g gen) sizedMatMul(d device.Dtype) (kernels.Instr, []Tensor) {
	var e [3]int
	switch s := g.sized; s.unit {
	case thresholds.Work:
		e[0], e[1] = g.factors(s.n)
		e[1], e[2] = g.factors(e[1])
	case thresholds.Extent:
		e = [3]int{s.n, 1 + g.IntN(20), 1 + g.IntN(20)}
	default:
		e[0], e[1] = g.factors(s.n)
		e[2] = 1 + g.IntN(3)
		return g.product(d, e)
	}
	g.Shuffle(3, func(a, b int) { e[a], e[b] = e[b], e[a] })
	return g.product(d, e)
}

// product is a product of matrices of m, n and k rows, columns and terms.
func (g gen) product(d device.Dtype, e [3]int) (kernels.Instr, []Tensor) {
	i := kernels.MatMul{TransA: g.chance(0.5), TransB: g.chance(0.5)}
	a, b := device.Shape{e[0], e[2]}, device.Shape{e[2], e[1]}
	if i.TransA {
		slices.Reverse(a)
	}
	if i.TransB {
		slices.Reverse(b)
	}
	return i, []Tensor{g.tensor(d, a), g.tensor(d, b)}
}

// families are those of a suite to draw from for a size: the oracles of some take more time than
// others, and only products are much work.
func (s *sized) families(all []string) []string {
	light := []string{"Unary", "Binary", "Reduce", "Reshape", "Transpose", "Slice", "Concat", "Cast", "NonFinite", "SumSquares", biased}
	switch {
	case s.unit == thresholds.Work:
		return []string{"MatMul", "MatMul", "Conv2d", "Conv2dGradX", "Conv2dGradW"}
	case s.unit == thresholds.Elems && s.n > 200_000:
		return []string{"Transpose", biased, "Binary"}
	case s.unit == thresholds.Elems && s.n > 20_000:
		return light
	case s.unit == thresholds.Extent && s.n > 1200:
		return append(light, "MatMul")
	case s.unit == thresholds.Extent && s.n > 150 || s.unit == thresholds.Elems && s.n > 5000:
		return slices.DeleteFunc(slices.Clone(all), func(f string) bool {
			return strings.Contains(f, "Attention") || strings.HasPrefix(f, "Viewed") || f == "SoftmaxGrad" || f == "NormalizeGrad"
		})
	}
	return all
}

// biased is the family of products to which a row is added.
const biased = "MatMulThen of one step"

func (g gen) biased() (kernels.Instr, []Tensor) {
	d := g.float()
	of, in := g.sizedMatMul(d)
	c, err := of.Infer(types(in))
	if err != nil {
		panic(err)
	}
	then := kernels.Map{Shape: c[0].Shape, Steps: []kernels.Step{{Op: kernels.Binary{Fn: kernels.Add}, Args: [2]int{0, 1}}}, Outs: []kernels.Out{{Reg: 2}}}
	return kernels.MatMulThen{MatMul: of.(kernels.MatMul), Then: then}, append(in, g.tensor(d, c[0].Shape[1:]))
}

// manyHeads is attention of as many small heads as come near to the size, which is work.
func (g gen) manyHeads() (kernels.Instr, []Tensor) {
	const t, e = 64, 8
	heads := g.sized.n / (t * t * e) // rounded down: below the size there is one fewer
	if g.sized.n%(t*t*e) == 1 {
		heads++
	}
	s := device.Shape{1, t, heads, e}
	d := g.float()
	return kernels.Attention{}, []Tensor{g.tensor(d, s), g.tensor(d, s), g.tensor(d, s)}
}

// checkSizes draws instructions of all families with sizes 0 and 1, and below, at and above every
// threshold.
func checkSizes(t *testing.T, d device.Device, e extent) {
	g, at := gen{Rand: rand.New(rand.NewPCG(13, 13))}, 0
	check := func(name string, unit thresholds.Unit, n int) {
		g.sized = &sized{unit: unit, n: n}
		families := g.sized.families(e.families)
		family := families[at%len(families)]
		at++
		i, in := kernels.Instr(nil), []Tensor(nil)
		switch {
		case name == "kernels/cpu.attentionWork":
			i, in = g.manyHeads()
		case family == biased:
			i, in = g.biased()
		default:
			i, in = g.draw(family)
		}
		Check(t, d, i, in...)
	}
	for n := range 2 {
		wide := kernels.Window{Kernel: [2]int{1, 4}} // which takes several blocks of columns, also where no channel is to come out
		x, w, gy := device.Shape{1, 1, 2, 17_000}, device.Shape{n, 1, 1, 4}, device.Shape{1, n, 2, 16_997}
		for _, of := range []struct {
			kernels.Instr
			in [2]device.Shape
		}{
			{kernels.Conv2d{Window: wide}, [2]device.Shape{x, w}},
			{kernels.Conv2dGradX{Window: wide, Height: 2, Width: 17_000}, [2]device.Shape{w, gy}},
			{kernels.Conv2dGradW{Window: wide}, [2]device.Shape{x, gy}},
		} {
			Check(t, d, of.Instr, g.tensor(device.Float64, of.in[0]), g.tensor(device.Float64, of.in[1]))
		}
		for range e.families {
			check("", thresholds.Elems, n)
			check("", thresholds.Extent, n)
		}
	}
	sizes := thresholds.Around(e.around)
	for range sizes.Len() * soak.Cases(1) {
		s, side := sizes.Next()
		n, unit, each := s.Value+side, s.Unit, e.each
		if unit == thresholds.Bytes {
			n, unit = s.Elems(4, side), thresholds.Elems
		}
		if unit == thresholds.Work || n > 20_000 {
			each = 1
		}
		for range each {
			check(s.Name, unit, n)
		}
	}
	require.Empty(t, sizes.Missing())
}

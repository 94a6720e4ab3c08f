package main

import (
	"cmp"
	"errors"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/weft-project/weft/autodiff"
)

// spectrum are Newton's seven colours, as we paint them.
var spectrum = []struct {
	word string
	as   color.RGBA
}{
	{"red", color.RGBA{R: 210, G: 20, B: 20, A: 255}}, {"orange", color.RGBA{R: 240, G: 130, A: 255}},
	{"yellow", color.RGBA{R: 200, G: 170, A: 255}}, {"green", color.RGBA{G: 140, B: 40, A: 255}},
	{"blue", color.RGBA{R: 20, G: 80, B: 230, A: 255}}, {"indigo", color.RGBA{R: 70, B: 150, A: 255}},
	{"violet", color.RGBA{R: 150, G: 40, B: 200, A: 255}},
}

// kin are words that are much alike to a reader of Opticks.
var kin = [][]string{
	{"red", "orange", "yellow", "green", "blue", "indigo", "violet"}, {"one", "two", "three", "four", "five", "six"},
	{"glass", "water", "air", "crystal"}, {"inch", "inches", "feet", "foot"}, {"refracted", "reflected", "transmitted"},
}

// readVectors copies a table's rows, each made of length 1.
func readVectors(table *autodiff.Tensor, dim int) ([][]float64, error) {
	v, err := autodiff.Values[float32](table)
	if err != nil {
		return nil, err
	}
	var x [][]float64
	for row := range slices.Chunk(v, dim) {
		r := make([]float64, dim)
		for i, e := range row {
			r[i] = float64(e)
		}
		if n := floats.Norm(r, 2); n > 0 {
			floats.Scale(1/n, r)
		}
		x = append(x, r)
	}
	return x, nil
}

// number is a word's, −1 where the text does not have it.
func (d *corpus) number(word string) int { return slices.Index(d.words, word) }

// askedFor are the words whose neighbours are printed.
func (d *corpus) askedFor() (some []int) {
	for _, w := range []string{"red", "violet", "glass", "ray", "inch", "two"} {
		if i := d.number(w); i >= 0 {
			some = append(some, i)
		}
	}
	return some
}

// nearest are the n words most like one.
func (d *corpus) nearest(x [][]float64, word, n int) (names []string) {
	all := make([]int, len(x))
	for i := range all {
		all[i] = i
	}
	slices.SortFunc(all, func(a, b int) int { return cmp.Compare(floats.Dot(x[b], x[word]), floats.Dot(x[a], x[word])) })
	for _, i := range slices.DeleteFunc(all, func(i int) bool { return i == word })[:min(n, len(x)-1)] {
		names = append(names, d.words[i])
	}
	return names
}

// kinship is how much more alike kin are than words of different kin, as a difference of cosines; 0
// where the text has too few of them.
func (d *corpus) kinship(x [][]float64) float64 {
	var sum, count [2]float64 // of strangers and of kin
	for g, a := range kin {
		for h, b := range kin {
			for _, v := range a {
				for _, w := range b {
					i, j := d.number(v), d.number(w)
					if i < 0 || j < 0 || i == j {
						continue
					}
					same := 0
					if g == h {
						same = 1
					}
					sum[same] += floats.Dot(x[i], x[j])
					count[same]++
				}
			}
		}
	}
	if count[0] == 0 || count[1] == 0 {
		return 0
	}
	return sum[1]/count[1] - sum[0]/count[0]
}

// drawn is how many words a map shows.
const drawn = 90

// draw maps the longer frequent words, and all colours, onto the two directions in which they
// differ the most.
func (d *corpus) draw(file string, x [][]float64) error {
	paint := map[int]color.Color{}
	var shown []int
	for _, s := range spectrum {
		if i := d.number(s.word); i >= 0 {
			paint[i], shown = s.as, append(shown, i)
		}
	}
	for _, group := range kin {
		for _, w := range group {
			if i := d.number(w); i >= 0 && !slices.Contains(shown, i) {
				paint[i], shown = color.Black, append(shown, i)
			}
		}
	}
	for i, w := range d.words {
		if len(shown) < drawn && len(w) > 4 && !slices.Contains(shown, i) {
			shown = append(shown, i)
		}
	}
	at, err := project(x, shown)
	if err != nil {
		return err
	}
	p := plot.New()
	p.Title.Text = "words of the text, near those that they are like"
	p.Title.Padding = vg.Points(12)
	p.HideAxes()
	for k, i := range shown {
		l, err := plotter.NewLabels(plotter.XYLabels{XYs: at[k : k+1], Labels: []string{d.words[i]}})
		if err != nil {
			return err
		}
		l.TextStyle[0].Color = color.Gray{Y: 150}
		l.TextStyle[0].Font.Size = vg.Points(7)
		if c := paint[i]; c != nil {
			l.TextStyle[0].Color = c
			l.TextStyle[0].Font.Size = vg.Points(10)
		}
		l.TextStyle[0].XAlign, l.TextStyle[0].YAlign = -0.5, -0.5
		p.Add(l)
	}
	return p.Save(22*vg.Centimeter, 16*vg.Centimeter, file)
}

// project gives the first two principal components of some rows, by rank rather than by value, so
// that names do not cover each other.
func project(x [][]float64, some []int) (plotter.XYs, error) {
	m := mat.NewDense(len(some), len(x[0]), nil)
	for k, i := range some {
		m.SetRow(k, x[i])
	}
	var pc stat.PC
	if !pc.PrincipalComponents(m, nil) {
		return nil, errors.New("the words have no principal components")
	}
	var vecs, at mat.Dense
	pc.VectorsTo(&vecs)
	at.Mul(m, vecs.Slice(0, len(x[0]), 0, min(2, len(x[0]))))
	out := make(plotter.XYs, len(some))
	_, cols := at.Dims()
	for axis := range cols {
		order := make([]int, len(some))
		for k := range order {
			order[k] = k
		}
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(at.At(a, axis), at.At(b, axis)) })
		for rank, k := range order {
			v := 0.5*at.At(k, axis)*math.Sqrt(float64(len(some))) + 0.5*(float64(rank)/float64(len(some))-0.5)
			if axis == 0 {
				out[k].X = v
			} else {
				out[k].Y = v
			}
		}
	}
	return out, nil
}

package main

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// palette are the colours of the arrangements.
var palette = []color.Color{color.RGBA{R: 214, G: 39, B: 40, A: 255}, color.RGBA{R: 31, G: 119, B: 180, A: 255}, color.RGBA{R: 44, G: 160, B: 44, A: 255}}

// drawWorkers draws against the number of workers.
func drawWorkers(file string) error {
	xs := []float64{10, 30, 100, 300, 1000, 3000, 10_000}
	return draw(file, "12 hours from one loss of a worker to its next", "workers", xs, func(a arrangement, x float64) outcome {
		return simulate(usual(int(x), a.groups(int(x))...))
	})
}

// drawLosses draws against how often a worker is lost.
func drawLosses(file string) error {
	return draw(file, "10,000 workers", "losses of each worker in a day", []float64{0.1, 0.3, 1, 2, 4, 8, 16}, func(a arrangement, x float64) outcome {
		s := usual(10_000, a.groups(10_000)...)
		s.LossEvery = 24 * hour / x
		return simulate(s)
	})
}

// draw draws, for each arrangement, the share of the workers' time that counts, and that of tries
// which a loss breaks.
func draw(file, title, x string, xs []float64, of func(a arrangement, x float64) outcome) error {
	p := plot.New()
	p.Title.Text = title + ": time that counts; dashed: tries that are broken"
	p.X.Label.Text, p.Y.Label.Text = x, "share"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Y.Min, p.Y.Max = 0, 1.25
	p.Add(plotter.NewGrid())
	for k, a := range arrangements() {
		ys, more := make(plotter.XYs, len(xs)), make(plotter.XYs, len(xs))
		for i, x := range xs {
			o := of(a, x)
			ys[i], more[i] = plotter.XY{X: x, Y: o.Counts}, plotter.XY{X: x, Y: o.Broken}
		}
		solid, err := plotter.NewLine(ys)
		if err != nil {
			return err
		}
		thin, err := plotter.NewLine(more)
		if err != nil {
			return err
		}
		solid.Color, solid.Width = palette[k], vg.Points(2)
		thin.Color, thin.Dashes = palette[k], []vg.Length{vg.Points(3), vg.Points(3)}
		p.Add(solid, thin)
		p.Legend.Add(a.name, solid)
	}
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(3)
	return p.Save(16*vg.Centimeter, 10*vg.Centimeter, file)
}

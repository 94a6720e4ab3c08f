package main

import (
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// draw writes a picture of the times, forward and backward together, in the format that the file's
// name ends with.
func draw(lines [][]point, file string) error {
	p := plot.New()
	p.Title.Text = "Compiling a function, forward and gradient"
	p.X.Label.Text, p.Y.Label.Text = "ops in the graph", "seconds"
	p.X.Min, p.Y.Min = 0, 0
	p.X.Tick.Marker = plot.TickerFunc(func(low, high float64) []plot.Tick { // ops are whole numbers
		ticks := plot.DefaultTicks{}.Ticks(low, high)
		for i, t := range ticks {
			if t.Label != "" {
				ticks[i].Label = strconv.Itoa(int(t.Value))
			}
		}
		return ticks
	})
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs, p.Legend.YOffs = 2*vg.Millimeter, -3*vg.Millimeter
	p.Add(plotter.NewGrid())
	for i, points := range lines {
		var xys plotter.XYs
		for _, at := range points {
			xys = append(xys, plotter.XY{X: float64(at.ops), Y: (at.forward + at.backward).Seconds()})
		}
		line, dots, err := plotter.NewLinePoints(xys)
		if err != nil {
			return err
		}
		line.Color, dots.Color, dots.Shape = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i)
		p.Add(line, dots)
		p.Legend.Add(kinds[i].name, line, dots)
	}
	return p.Save(16*vg.Centimeter, 10*vg.Centimeter, file)
}

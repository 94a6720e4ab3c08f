package show

import (
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// CheckPlot refuses, before the training, a file that could not be written after it. The empty name
// means no picture.
func CheckPlot(file string) error {
	if file == "" {
		return nil
	}
	if ext := filepath.Ext(file); !slices.Contains([]string{".png", ".svg", ".pdf", ".jpg", ".eps", ".tif"}, ext) {
		return fmt.Errorf("a picture's name ends in .png, .svg or .pdf, not %q", ext)
	}
	if info, err := os.Stat(filepath.Dir(file)); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s is not a folder", filepath.Dir(file))
	}
	return nil
}

// Mark is a step before which something has happened.
type Mark struct {
	Step int
	Text string
}

// PlotLosses draws the loss of every step and its running mean, and the marks.
func PlotLosses(file, title string, losses []float64, marks ...Mark) error {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text, p.Y.Label.Text = "step", "cross-entropy"
	p.Y.Min = 0
	p.X.Tick.Marker = plot.TickerFunc(func(low, high float64) []plot.Tick { // steps are whole numbers
		ticks := plot.DefaultTicks{}.Ticks(low, high)
		for i, t := range ticks {
			if t.Label != "" {
				ticks[i].Label = strconv.Itoa(int(t.Value))
			}
		}
		return ticks
	})
	each, mean := make(plotter.XYs, len(losses)), make(plotter.XYs, len(losses))
	smooth := 0.0
	for i, l := range losses {
		if i == 0 {
			smooth = l
		}
		smooth += (l - smooth) / 20
		each[i] = plotter.XY{X: float64(i + 1), Y: l}
		mean[i] = plotter.XY{X: float64(i + 1), Y: smooth}
	}
	thin, err := plotter.NewLine(each)
	if err != nil {
		return err
	}
	thin.Color = color.Gray{Y: 190}
	thick, err := plotter.NewLine(mean)
	if err != nil {
		return err
	}
	thick.Color, thick.Width = color.RGBA{R: 31, G: 119, B: 180, A: 255}, vg.Points(2)
	p.Add(plotter.NewGrid(), thin, thick)
	p.Legend.Add("each step", thin)
	p.Legend.Add("running mean over 20", thick)
	if err := addMarks(p, marks, slices.Max(append(losses[:len(losses):len(losses)], 0))); err != nil {
		return err
	}
	p.Legend.Top, p.Legend.Padding, p.Legend.XOffs, p.Legend.YOffs = true, vg.Points(3), vg.Points(-6), vg.Points(-6)
	return p.Save(16*vg.Centimeter, 10*vg.Centimeter, file)
}

// addMarks draws a line up to top for each mark, with its text beside it.
func addMarks(p *plot.Plot, marks []Mark, top float64) error {
	for i, m := range marks {
		at := float64(m.Step) + 0.5
		line, err := plotter.NewLine(plotter.XYs{{X: at, Y: 0}, {X: at, Y: top}})
		if err != nil {
			return err
		}
		line.Color, line.Dashes = color.RGBA{R: 214, G: 39, B: 40, A: 255}, []vg.Length{vg.Points(3), vg.Points(3)}
		height := top * (0.7 - 0.07*float64(i%5)) // so that texts of marks that are close do not lie over each other
		text, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: at, Y: height}}, Labels: []string{" " + m.Text}})
		if err != nil {
			return err
		}
		p.Add(line, text)
	}
	return nil
}

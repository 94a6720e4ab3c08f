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

// CheckPlot refuses, before the training, a file that could not be written after it. The empty name means no picture.
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

// PlotLosses draws the loss of every step and its running mean.
func PlotLosses(file, title string, losses []float64) error {
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
	p.Legend.Top, p.Legend.Padding, p.Legend.XOffs, p.Legend.YOffs = true, vg.Points(3), vg.Points(-6), vg.Points(-6)
	return p.Save(16*vg.Centimeter, 10*vg.Centimeter, file)
}

package main

import (
	"fmt"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// reporter shows progress: a bar on a terminal, plain lines elsewhere, nothing with --json.
type reporter struct {
	s   settings
	out io.Writer
	bar *progressbar.ProgressBar // nil: plain lines
}

func newReporter(s settings, d *dataset, stdout io.Writer) *reporter {
	r := &reporter{s: s, out: stdout}
	if s.json {
		r.out = io.Discard
		return r
	}
	where := "in one process"
	if s.workers == 2 {
		where = "split over two workers"
	}
	fmt.Fprintf(r.out, "%d rows to train on, %d to test; %d-%d-%d-%d network %s\n",
		len(d.train.y), len(d.test.y), d.features, s.hidden, max(s.hidden/2, 1), d.classes, where)
	if !onTerminal(stdout) {
		return r
	}
	total := s.epochs * ((len(d.train.y) + s.batch - 1) / s.batch)
	if s.maxSteps > 0 {
		total = min(total, s.maxSteps)
	}
	r.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(stdout), progressbar.OptionSetWidth(30),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("steps"),
		progressbar.OptionThrottle(100*time.Millisecond))
	return r
}

// onTerminal is also true behind a launcher that shows this program's output on a terminal, and says so.
func onTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return os.Getenv("WEFT_TTY") == "1" || (ok && term.IsTerminal(int(f.Fd())))
}

func (r *reporter) step(loss float64) {
	if r.bar != nil {
		r.bar.Describe(fmt.Sprintf("loss %.4f", loss))
		_ = r.bar.Add(1) // a bar that cannot be drawn is no reason to stop
	}
}

func (r *reporter) epoch(n int, loss float64) {
	if r.bar == nil {
		fmt.Fprintf(r.out, "epoch %2d/%d  loss %.4f\n", n, r.s.epochs, loss)
	}
}

func (r *reporter) finish(accuracy float64, steps int, took time.Duration) {
	if r.bar != nil {
		fmt.Fprintln(r.out)
	}
	fmt.Fprintf(r.out, "%d steps in %.1f s, %.0f steps/s\n", steps, took.Seconds(), float64(steps)/took.Seconds())
	fmt.Fprintf(r.out, "test accuracy %.4f\n", accuracy)
}

// checkPlot refuses, before the training, a file that could not be written after it.
func checkPlot(file string) error {
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

// plotLosses draws the loss of every step and its running mean.
func plotLosses(file string, losses []float64, accuracy float64) error {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("test accuracy %.4f", accuracy)
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

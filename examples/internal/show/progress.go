package show

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Progress shows how training goes: a bar on a terminal, plain lines elsewhere.
type Progress struct {
	out io.Writer
	bar *progressbar.ProgressBar // nil: plain lines
}

// NewProgress begins with a bar of so many steps, where out is a terminal.
func NewProgress(out io.Writer, steps int) *Progress {
	p := &Progress{out: out}
	if onTerminal(out) {
		p.bar = progressbar.NewOptions(steps, progressbar.OptionSetWriter(out), progressbar.OptionSetWidth(30),
			progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("steps"),
			progressbar.OptionThrottle(100*time.Millisecond))
	}
	return p
}

// onTerminal is also true behind a launcher that shows this program's output on a terminal, and
// says so.
func onTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return os.Getenv("WEFT_TTY") == "1" || (ok && term.IsTerminal(int(f.Fd())))
}

// Step moves the bar by one step.
func (p *Progress) Step(loss float64) {
	if p.bar != nil {
		p.bar.Describe(fmt.Sprintf("loss %.4f", loss))
		_ = p.bar.Add(1) // a bar that cannot be drawn is no reason to stop
	}
}

// At moves the bar to a step: training goes on from there.
func (p *Progress) At(step int) {
	if p.bar != nil {
		_ = p.bar.Set(step) // a bar that cannot be drawn is no reason to stop
	}
}

// Line writes a line where there is no bar.
func (p *Progress) Line(format string, v ...any) {
	if p.bar == nil {
		fmt.Fprintf(p.out, format+"\n", v...)
	}
}

// Say prints a line, in place of the bar until its next step.
func (p *Progress) Say(format string, v ...any) {
	if p.bar != nil {
		_ = p.bar.Clear() // it cannot be drawn then: no reason to stop
	}
	fmt.Fprintf(p.out, format+"\n", v...)
}

// Done ends the bar's line.
func (p *Progress) Done() {
	if p.bar != nil {
		fmt.Fprintln(p.out)
	}
}

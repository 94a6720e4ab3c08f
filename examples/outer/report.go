package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/weft-project/weft/examples/internal/show"
	"github.com/weft-project/weft/parallel/outer"
)

// reporter shows how training goes, on the first worker, and who is lost or new.
type reporter struct {
	settings
	*show.Progress
	out             io.Writer
	made, exchanges int // here
	marks           []show.Mark
	since           string // that this worker is new
}

func newReporter(s settings, out io.Writer) *reporter {
	return &reporter{settings: s, Progress: show.NewProgress(out, s.steps), out: out}
}

// stepped is told of every step.
func (r *reporter) stepped(loss float64, l *outer.Loop) {
	step, first := int(l.Steps()), l.Group().Rank() == 0
	if r.made++; first {
		r.At(step - 1)
		r.Step(loss)
	}
	n := l.Total().Exchanges
	if n == r.exchanges {
		return
	}
	r.exchanges = n
	r.marks = append(r.marks, show.Mark{Step: r.made - 1})
	if e := l.Last(); first {
		r.Line("step %d/%d  loss %.4f  exchange %d took %.2f s, %.2f s of it waited for, %s sent",
			step, r.steps, loss, e.Round+1, e.Took.Seconds(), e.Waited.Seconds(), size(e.Bytes))
	}
}

// changed is told of who is lost and who has come. A newcomer tells of itself, and the first that
// was there before of all.
func (r *reporter) changed(ch outer.Change) {
	first := slices.IndexFunc(ch.Members, func(name string) bool { return !slices.Contains(ch.Came, name) })
	switch {
	case slices.Contains(ch.Came, ch.Members[ch.Rank]):
		r.since = " since it came"
		r.Say("this worker is new, from exchange %d on; it goes on with %d workers", ch.Round+1, len(ch.Members))
		return
	case ch.Rank != first:
		return
	}
	var what []string
	for _, x := range []struct {
		is  string
		who []string
	}{{"lost", ch.Lost}, {"new", ch.Came}} {
		if len(x.who) > 0 {
			what = append(what, x.is+": "+strings.Join(x.who, ", "))
		}
	}
	r.Say("before exchange %d: %s; it goes on with %d workers", ch.Round+1, strings.Join(what, "; "), len(ch.Members))
}

func (r *reporter) conclude(got result) error {
	r.Done()
	fmt.Fprintf(r.out, "test loss %.4f, %.2f%% right; %d exchanges%s, %s sent by each worker, %.2f s of %.2f s waited for\n",
		got.Loss, 100*got.Right, got.Exchanges, r.since, size(got.Bytes), got.Waited.Seconds(), got.Took.Seconds())
	if r.plot == "" {
		return nil
	}
	if err := show.PlotLosses(r.plot, fmt.Sprintf("test loss %.4f; a line for each exchange", got.Loss), got.Losses, r.marks...); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	fmt.Fprintf(r.out, "losses in %s\n", r.plot)
	return nil
}

// beside compares with steps in which all gradients are summed.
func (r *reporter) beside(got, sync result, bytes int) {
	each := max(sync.Took/compareBy, r.pace)
	whole := each * time.Duration(r.steps)
	part := func(of, whole float64) float64 { return 100 * of / max(whole, 1) }
	fmt.Fprintf(r.out, "a step of all workers together takes %.2f s here, as measured; %d of them %.1f s and %s: this took %.1f s (%.3g%% of it) and sent %s (%.3g%%)\n",
		each.Seconds(), r.steps, whole.Seconds(), size(bytes*r.steps),
		got.Took.Seconds(), part(float64(got.Took), float64(whole)), size(got.Bytes), part(float64(got.Bytes), float64(bytes*r.steps)))
}

// bytesTogether is what a worker sends of gradients in a step of all together.
func bytesTogether(t *task, s settings) int {
	n := 0
	for _, p := range t.model(rand.New(rand.NewPCG(s.seed, 0))).Params() {
		n += p.Type().Bytes()
	}
	return 2 * n * (s.workers - 1) / s.workers
}

func size(bytes int) string {
	switch {
	case bytes >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
	case bytes >= 1e3:
		return fmt.Sprintf("%.1f kB", float64(bytes)/1e3)
	}
	return fmt.Sprintf("%d bytes", bytes)
}

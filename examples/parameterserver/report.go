package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/weft-project/weft/examples/internal/show"
)

// result is what --json prints.
type result struct {
	Words      int                 `json:"words"`      // in the text
	Vocabulary int                 `json:"vocabulary"` // different ones
	Losses     []float64           `json:"losses"`     // of each step, of all trainers as they came
	Steps      map[string]int      `json:"steps"`      // by trainer
	Lost       []string            `json:"lost"`
	Nearest    map[string][]string `json:"nearest"`
	Likeness   float64             `json:"likeness"` // of words like each other, above that of any words: see kinship
	Seconds    float64             `json:"seconds"`
}

// reporter shows what the server sees; nothing with --json. Safe for concurrent use.
type reporter struct {
	mu   sync.Mutex
	bar  *show.Progress
	out  io.Writer
	mean float64
}

// lineEvery is how many steps lie between two lines, where there is no bar.
const lineEvery = 1000

func newReporter(s settings, d *corpus, stdout io.Writer) *reporter {
	r := &reporter{out: stdout}
	if s.json {
		r.out = io.Discard
	}
	fmt.Fprintf(r.out, "%d words of text, %d different ones, in %d dimensions; %d trainers, %d steps each\n", len(d.text), len(d.words), s.dim, s.trainers, s.steps)
	r.bar = show.NewProgress(r.out, s.trainers*s.steps)
	return r
}

func (r *reporter) joined(g greeting) { r.say("%s is here, process %d", g.Trainer, g.PID) }

func (r *reporter) lost(trainer string, took time.Duration, left int) {
	r.say("%s is lost; its passes were gone %v later; trainers that go on: %d", trainer, took.Round(time.Millisecond), left)
}

func (r *reporter) say(format string, v ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bar.Say(format, v...)
}

// step takes the loss of the n-th step of all.
func (r *reporter) step(n int, loss float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n == 1 {
		r.mean = loss
	}
	r.mean += (loss - r.mean) / 100
	r.bar.Step(r.mean)
	if n%lineEvery == 0 {
		r.bar.Line("step %6d  loss %.4f", n, r.mean)
	}
}

// finish says what was learned, and draws it.
func (v *server) finish(lost []string, took time.Duration, stdout io.Writer) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.losses) == 0 {
		return fmt.Errorf("no trainer made a step; lost: %v", lost)
	}
	x, err := readVectors(v.word.Table, v.s.dim)
	if err != nil {
		return err
	}
	nearest := map[string][]string{}
	for _, w := range v.d.askedFor() {
		nearest[v.d.words[w]] = v.d.nearest(x, w, 6)
	}
	kin := v.d.kinship(x)
	v.out.bar.Done()
	v.out.say("%d steps in %.1f s, %.0f steps/s; words like each other are %.2f more alike than others", len(v.losses), took.Seconds(), float64(len(v.losses))/took.Seconds(), kin)
	for _, w := range v.d.askedFor() {
		fmt.Fprintf(v.out.out, "%10s: %s\n", v.d.words[w], strings.Join(nearest[v.d.words[w]], ", "))
	}
	if v.s.plot != "" {
		if err := v.d.draw(v.s.plot, x); err != nil {
			return fmt.Errorf("plot: %w", err)
		}
		fmt.Fprintf(v.out.out, "map of the words in %s\n", v.s.plot)
	}
	if v.s.json {
		return json.NewEncoder(stdout).Encode(result{
			Words: len(v.d.text), Vocabulary: len(v.d.words), Losses: v.losses, Steps: v.steps, Lost: lost, Nearest: nearest, Likeness: kin, Seconds: took.Seconds(),
		})
	}
	return nil
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/weft-project/weft/examples/internal/place"
	"github.com/weft-project/weft/examples/internal/show"
	"github.com/weft-project/weft/rpc"
)

// result is what --json prints.
type result struct {
	Workers         int       `json:"workers"`
	Vocabulary      int       `json:"vocabulary"`
	Parameters      int       `json:"parameters"`
	Losses          []float64 `json:"losses"` // of each step, before it
	TestLoss        float64   `json:"test_loss"`
	Seconds         float64   `json:"seconds"` // of training
	TokensPerSecond float64   `json:"tokens_per_second"`
	Measured        *figures  `json:"measured,omitempty"`
	Sample          string    `json:"sample"`
}

// trainHere trains the whole model in this process.
func trainHere(c context.Context, s settings, stdout io.Writer) (err error) {
	d, err := s.corpus()
	if err != nil {
		return err
	}
	dev, says, err := place.Open(s.device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	m, err := newWhole(s.sizes(d), s.lr, rates(s.steps), dev.Device)
	if err != nil {
		return err
	}
	s.on = says
	return train(c, s, d, m, stdout)
}

// trainSplit is one worker of several: the first of each pipeline drives it, the others serve their
// stages until it has finished.
func trainSplit(c context.Context, s settings, stdout io.Writer) (err error) {
	var d *corpus
	rank, _ := strconv.Atoi(os.Getenv("RANK")) // Join says what is wrong with it
	drives := rank%len(s.blocks) == 0
	if drives { // a bad text should not cost anybody a join
		if d, err = s.corpus(); err != nil {
			return err
		}
	}
	dev, says, err := place.Open(s.device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	s.on = says
	w, err := dev.Join(c, functions())
	if err != nil {
		return err
	}
	if drives {
		if err := drive(c, s, d, w, stdout); err != nil {
			_ = w.Close() // the error says more
			return err
		}
	}
	return w.Leave(c) // fails where another worker was lost
}

// drive trains as the first worker of a pipeline. Of several pipelines the first one tells about
// it.
func drive(c context.Context, s settings, d *corpus, w *rpc.Worker, stdout io.Writer) error {
	if s.replicas == 1 {
		m, err := newPipeline(c, w, s.sizes(d), s.lr, rates(s.steps), s.inFlight)
		if err != nil {
			return err
		}
		return train(c, s, d, m, stdout)
	}
	m, err := newTeam(c, w, s.sizes(d), team{s.replicas, s.lr, s.steps}, s.inFlight)
	if err != nil {
		return err
	}
	s.rounds, s.pipeline = 0, w.Rank()/len(s.blocks)
	if s.pipeline > 0 {
		return steps(c, s, m, s.draw(d), io.Discard, new([]float64))
	}
	return train(c, s, d, m, stdout)
}

// draw gives the micro-batches of a step: those that this process has of all pipelines'.
func (s settings) draw(d *corpus) func() []micro {
	src := rand.New(rand.NewPCG(s.seed, 4))
	return func() []micro {
		all := batch(src, d.train, s.micros*s.replicas, s.rows, s.context)
		if s.workers == 1 {
			return all
		}
		return all[s.pipeline*s.micros:][:s.micros]
	}
}

// corpus reads the text, and finds out early whether the prompt can be written with its bytes.
func (s settings) corpus() (*corpus, error) {
	text, err := readText(s.data)
	if err != nil {
		return nil, err
	}
	d, err := newCorpus(text, s.vocab, s.context)
	if err == nil {
		_, err = d.encode(s.prompt)
	}
	return d, err
}

func (s settings) sizes(d *corpus) sizes {
	return sizes{Vocab: len(d.pieces), Context: s.context, Width: s.width, Heads: s.heads, Blocks: s.blocks, Seed: s.seed}
}

// perStep is the number of tokens in a step.
func (s settings) perStep() int { return s.replicas * s.micros * s.rows * s.context }

// train runs the steps, tests, measures, lets the model write, and shows what was asked for.
func train(c context.Context, s settings, d *corpus, m language, stdout io.Writer) error {
	out := stdout
	if s.json {
		out = io.Discard
	}
	r := result{Workers: s.workers, Vocabulary: len(d.pieces), Parameters: s.sizes(d).parameters()}
	fmt.Fprintf(out, "%d tokens to train on, %d to test, of %d kinds; %d parameters in %s, %s\n",
		len(d.train), len(d.test), r.Vocabulary, r.Parameters, s.where(), s.on)
	draw := s.draw(d)
	began := time.Now()
	if err := steps(c, s, m, draw, out, &r.Losses); err != nil {
		return fmt.Errorf("step %d: %w", len(r.Losses)+1, err)
	}
	r.Seconds = time.Since(began).Seconds()
	r.TokensPerSecond = float64(s.steps*s.perStep()) / r.Seconds
	fmt.Fprintf(out, "%d steps in %.1f s, %.0f tokens/s\n", s.steps, r.Seconds, r.TokensPerSecond)
	var err error
	if r.TestLoss, err = test(c, s, d, m); err != nil {
		return fmt.Errorf("test: %w", err)
	}
	fmt.Fprintf(out, "test loss %.4f\n", r.TestLoss)
	if p, split := m.(*pipeline); split && s.rounds > 0 {
		f, err := measure(c, p, s.rounds, draw)
		if err != nil {
			return fmt.Errorf("measuring: %w", err)
		}
		r.Measured = &f
		f.print(out, p.first.sizes)
	}
	if r.Sample, err = generate(c, m, d, s); err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	fmt.Fprintf(out, "\n%s\n\n", r.Sample)
	if s.plot != "" {
		if err := show.PlotLosses(s.plot, fmt.Sprintf("test loss %.4f", r.TestLoss), r.Losses); err != nil {
			return fmt.Errorf("plot: %w", err)
		}
		fmt.Fprintf(out, "loss curve in %s\n", s.plot)
	}
	if s.json {
		return json.NewEncoder(stdout).Encode(r)
	}
	return nil
}

func (s settings) where() string {
	if s.workers == 1 {
		return "one process"
	}
	where := fmt.Sprintf("%d stages of %v blocks, %d micro-batches to a step", len(s.blocks), s.blocks, s.micros)
	if s.replicas > 1 {
		where = fmt.Sprintf("%d pipelines of %s", s.replicas, where)
	}
	return where
}

// steps trains.
func steps(c context.Context, s settings, m language, draw func() []micro, out io.Writer, losses *[]float64) error {
	p := show.NewProgress(out, s.steps)
	every, mean := max(s.steps/20, 1), 0.0
	for step := range s.steps {
		loss, err := m.step(c, draw())
		if err != nil {
			return err
		}
		if math.IsNaN(loss) || math.IsInf(loss, 0) {
			return fmt.Errorf("the loss is %v; a smaller --lr than %g may help", loss, s.lr)
		}
		*losses, mean = append(*losses, loss), mean+loss/float64(every)
		p.Step(loss)
		if (step+1)%every == 0 {
			p.Line("step %4d/%d  loss %.4f", step+1, s.steps, mean)
			mean = 0
		}
	}
	p.Done()
	return nil
}

// test is the mean loss over windows of the test part, the same for every model of a seed.
func test(c context.Context, s settings, d *corpus, m language) (mean float64, err error) {
	ms := batch(rand.New(rand.NewPCG(s.seed, 6)), d.test, s.micros, s.rows, s.context)
	for _, b := range ms {
		v, err := m.values(c, b.ids, b.next)
		if err != nil {
			return 0, err
		}
		mean += float64(v[0]) / float64(len(ms))
	}
	return mean, nil
}

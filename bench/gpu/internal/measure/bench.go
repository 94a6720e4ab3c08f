package measure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/weft-project/weft/bench/gpu/internal/flags"
	"github.com/weft-project/weft/bench/gpu/internal/places"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/kernels/gpu"
)

// line is what a case prints: bench/torch/gpu.py's form.
type line struct {
	Case       string   `json:"case"`
	Peer       string   `json:"peer"`
	Op         string   `json:"op,omitempty"`
	Mode       string   `json:"mode,omitempty"`
	MS         float64  `json:"ms,omitempty"`
	GBps       float64  `json:"gbps,omitempty"`
	OfCopy     float64  `json:"of_copy,omitempty"`        // share of the copy's bandwidth
	OfOne      float64  `json:"of_one_process,omitempty"` // share of the speed of one process
	TFlops     float64  `json:"tflops,omitempty"`
	TokensPerS float64  `json:"tokens_per_s,omitempty"`
	HeldGiB    float64  `json:"held_gib,omitempty"` // of the GPU's memory, in the end
	HostUS     float64  `json:"host_us,omitempty"`  // of Go's time
	Library    string   `json:"cublaslt,omitempty"` // where it is and its version, or why there is none
	Off        *float64 `json:"off,omitempty"`      // by how much losses differ from the right ones, as a share
	OffAllowed float64  `json:"off_allowed,omitempty"`
	Error      string   `json:"error,omitempty"`
}

// bench is a run of benchmarks.
type bench struct {
	sizes
	at     places.Place
	rounds int
	out    *json.Encoder
	open   func() (cuda.Driver, error) // opens the GPU
	commit string                      // what the program was made of
	copied float64                     // the copy's GB/s, once it is known
	fp8    int                         // from how many multiplications on products are of e4m3; 0: where it is worth it
	hopper bool                        // attention is by wgmma
}

// cases are the benchmarks, in order; those of bench/torch/gpu.py have its names.
var cases = []struct {
	name string
	run  func(*bench, context.Context) error
}{
	{"correct", (*bench).correct}, {"copy", (*bench).copy}, {"product", (*bench).product}, {"small", (*bench).small}, {"large", (*bench).large},
	{"gpt", (*bench).gpt}, {"bound", (*bench).bound}, {"attention", (*bench).attention}, {"launch", (*bench).launch}, {"split", (*bench).split},
}

// CaseNames are the names of all benchmarks, in order.
func CaseNames() (names []string) {
	for _, c := range cases {
		names = append(names, c.name)
	}
	return names
}

// newBench is a bench with the flags that all verbs share.
func newBench(f *flag.FlagSet, out io.Writer) *bench {
	b := &bench{at: "cuda:0", out: json.NewEncoder(out)}
	f.Var(&b.at, "device", "cuda:N, or interpreter: PTX on the host's processor, in tiny sizes")
	b.open = func() (cuda.Driver, error) { return b.at.Driver() }
	f.IntVar(&b.rounds, "rounds", 30, "rounds that a median is of")
	return b
}

// wrong says what is wrong with the flags.
func (b *bench) wrong() error { return errors.Join(b.at.Check(), flags.CheckRounds(b.rounds)) }

// TinyEnv has a GPU take the interpreter's sizes: for who tries the program, and not the GPU.
const TinyEnv = "WEFT_GPUCHECK_TINY"

// ready chooses sizes for the device.
func (b *bench) ready() {
	b.sizes = full
	if b.at == places.Interpreter || os.Getenv(TinyEnv) != "" {
		b.sizes, b.rounds = tiny, min(b.rounds, 2)
	}
}

// Main runs the benchmarks that a command line names, on a GPU. commit is what the program was
// made of.
func Main(c context.Context, commit string, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("gpucheck bench", flag.ContinueOnError)
	b := newBench(f, stdout)
	b.commit = commit
	only := f.String("only", "", "cases, separated by commas; all without")
	if err := flags.Parse(f, args, stderr, b.wrong, func() error {
		if words := flags.Unknown(*only, func(w string) bool { return slices.Contains(CaseNames(), w) }); words != "" {
			return fmt.Errorf("-only %q: there is no %s; expected some of %s", *only, words, strings.Join(CaseNames(), ","))
		}
		return nil
	}); err != nil {
		return err
	}
	names := CaseNames()
	if *only != "" {
		names = strings.Split(*only, ",")
	}
	b.ready()
	return b.cases(c, names)
}

// cases runs the cases of these names. One driver is open for as long as they run: without any the
// GPU's context would end between two cases, and cuBLASLt, which stays loaded, would hold what was
// of that.
func (b *bench) cases(c context.Context, names []string) error {
	held, err := b.open()
	if err != nil {
		return err
	}
	b.say(line{Case: "device", Op: held.Info().Name, Library: b.at.Library()})
	var failed error
	for _, name := range names {
		for _, k := range cases {
			if k.name != name {
				continue
			}
			if err := guarded(func() error { return k.run(b, c) }); err != nil {
				failed = flags.ErrFailed
				if !errors.Is(err, flags.ErrFailed) {
					b.say(line{Case: name, Error: err.Error()})
				}
			}
		}
	}
	return errors.Join(failed, held.Close())
}

// guarded makes an error of a panic: one case must not cost the others.
func guarded(run func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return run()
}

func (b *bench) say(l line) {
	l.Peer = "weft " + b.commit
	if err := b.out.Encode(l); err != nil { // a figure is infinite
		_ = b.out.Encode(line{Case: l.Case, Peer: l.Peer, Op: l.Op, Mode: l.Mode, Error: cmp.Or(l.Error, err.Error())})
	}
}

// on runs a part of a case on a device of its own, which is closed after it.
func (b *bench) on(p gpu.Precision, run func(dev *device.Accelerator, t *clock) error) error {
	dev, err := b.device(p)
	if err != nil {
		return err
	}
	t, err := newClock(dev, b.rounds)
	if err == nil {
		err = errors.Join(run(dev, t), t.Close())
	}
	return errors.Join(err, dev.Close())
}

// device makes a device of the GPU.
func (b *bench) device(p gpu.Precision) (*device.Accelerator, error) {
	id, err := b.at.ID()
	if err != nil {
		return nil, err
	}
	d, err := b.open()
	if err != nil {
		return nil, err
	}
	return gpu.Config{Precision: p, FP8From: b.fp8, Hopper: b.hopper}.On(d, id)
}

// report runs a part of a case, and says its line: with the error where it fails, and the others go
// on.
func (b *bench) report(l line, run func(l *line) error) error {
	err := guarded(func() error { return run(&l) })
	if err != nil {
		l.Error = err.Error()
	}
	b.say(l)
	if err != nil {
		return flags.ErrFailed
	}
	return nil
}

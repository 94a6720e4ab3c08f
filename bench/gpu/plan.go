package main

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-project/weft/bench/gpu/internal/places"
	"github.com/weft-project/weft/bench/gpu/internal/report"
)

// part is a share of the check that fits into ten minutes.
type part int

const (
	both   part = iota // what comes first in any
	first              // whether Weft is right, and the benchmarks that tell most
	second             // the rest
)

var parts = [...]string{both: "", first: "first", second: "second"}

// Set is flag.Value's. What is wrong is told by check, with all else.
func (p *part) Set(s string) error {
	*p = part(slices.Index(parts[:], s))
	return nil
}

func (p *part) String() string {
	if *p < 0 {
		return "?"
	}
	return parts[*p]
}

func (p part) check() error {
	if p < 0 {
		return fmt.Errorf("-part; expected first, second or nothing")
	}
	return nil
}

// plan lists the steps, the most important first. The time that a step needs is what it should take
// on a GPU of 2023, its driver's cache empty.
func plan(o options) []step {
	return slices.Concat(o.machine(), o.correctness(), o.benches(first, 1, "copy", "bound", "large", "gpt", "attention", "launch", "split"),
		o.benches(second, 1, "small", "product"),
		o.benches(second, 2, "large", "gpt", "small", "attention", "copy", "launch", "split"), o.sanitizer())
}

//go:embed versions.py
var versions string

// machine are steps that say what this machine is. The last is the first to open the driver.
func (o options) machine() []step {
	steps := []step{{name: "machine", need: 3 * time.Second, limit: 25 * time.Second, argv: []string{o.self, "machine"}, lines: true}}
	python, not := o.python()
	return append(steps, step{
		name: "python", need: 15 * time.Second, limit: 40 * time.Second, argv: []string{python, "-c", versions}, lines: true, aside: true, not: not,
	}, step{
		name: "device", need: 10 * time.Second, limit: time.Minute, argv: []string{o.self, "device", "-device", string(o.at)}, lines: true, last: report.AllDone,
		must: true, always: true,
	})
}

// python is the interpreter of Python, or why there is none.
func (o options) python() (path, not string) {
	if path = find("python3"); path == "" {
		not = "there is no python3"
	}
	return path, not
}

// correctness is steps that are tests, and one that is like them.
func (o options) correctness() []step {
	test := func(name string, need, limit time.Duration, file string, more ...string) step {
		return step{name: name, part: first, need: need, limit: limit, argv: append([]string{file}, more...), env: o.env(), must: true, last: "PASS"}
	}
	kernels := test("kernels", 90*time.Second, 3*time.Minute, "gpu.test", "-test.skip="+experimental)
	if o.at == places.Interpreter { // where make test runs all of them
		kernels.argv = append(kernels.argv, "-test.run="+sanitized)
	}
	correct := o.bench("correct", 10*time.Second, 90*time.Second)
	correct.part, correct.must = first, true
	hopper := test("hopper", 10*time.Second, time.Minute, "gpu.test", "-test.run="+experimental)
	hopper.must, hopper.experiment = false, true
	return []step{
		test("driver", 15*time.Second, time.Minute, "testgpu.test", "-test.skip=TestAFault"),
		test("fault", 5*time.Second, 30*time.Second, "testgpu.test", "-test.run=TestAFault/a_fault"),
		kernels,
		test("generated kernels", 30*time.Second, 2*time.Minute, "gen.test", "-test.skip=TextsAreAsReviewed"),
		test("gradients", 18*time.Second, 2*time.Minute, "autodiff.test", "-test.run=TestOnAGPU"),
		test("device maps", 20*time.Second, 90*time.Second, "gpus.test"),
		test("training", 10*time.Second, 2*time.Minute, "digits.test", "-test.run=Accelerator|OnGPUs|BFloat16|FirstFifty|ReachesItsAccuracy"),
		correct,
		hopper,
	}
}

// experimental are tests of kernels that programs have to ask for: what these do is no verdict on
// the others.
const experimental = "ProductsOfFourWarps"

// sanitized is what compute-sanitizer looks at: it makes kernels a hundred times slower.
const sanitized = "TestEveryInstruction.*/(MatMul|Conv2d|MaxPool2d|Softmax|LayerNorm|CrossEntropy|Gather|ScatterAdd|Map|Reduce|Transpose|Update|Random)"

// sanitizer is a step that looks at kernels' accesses to memory.
func (o options) sanitizer() []step {
	tool := find("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer")
	not := ""
	switch {
	case o.at == places.Interpreter:
		not = "compute-sanitizer does not run on the interpreter"
	case tool == "":
		not = "there is no compute-sanitizer"
	}
	return []step{{
		name: "sanitizer", part: second, need: 100 * time.Second, limit: 3 * time.Minute, env: o.env(), long: true, not: not,
		// Results that are no success are asked for: by tests of errors, and to count a kernel's
		// parameters.
		argv: []string{tool, "--error-exitcode=9", "--report-api-errors=no", "--launch-timeout=60", o.file("gpu.test"), "-test.short", "-test.run=" + sanitized},
	}}
}

// torchNeeds are the benchmarks that PyTorch has too, and what it needs for them: some it compiles,
// twice.
var torchNeeds = map[string]time.Duration{
	"copy": 10 * time.Second, "bound": 15 * time.Second, "small": 50 * time.Second, "large": time.Minute, "gpt": 110 * time.Second, "product": 20 * time.Second,
	"attention": 15 * time.Second,
}

// benches are benchmarks in turns with PyTorch's.
func (o options) benches(p part, round int, names ...string) (steps []step) {
	python, not := o.python()
	if o.at == places.Interpreter {
		not = "PyTorch does not run on the interpreter"
	}
	for _, name := range names {
		add := func(s step) {
			s.part, s.name = p, s.name+" "+strconv.Itoa(round)
			steps = append(steps, s)
		}
		need := 8 * time.Second
		if name == "split" {
			need *= 2
		}
		add(o.bench(name, need, 2*time.Minute))
		if need, has := torchNeeds[name]; has {
			add(step{
				name: "torch " + name, need: need, limit: 150 * time.Second, lines: true, aside: true, not: not,
				argv: []string{python, o.file("gpu.py"), "--only", name, "--rounds", strconv.Itoa(o.rounds)}, env: []string{"CUDA_VISIBLE_DEVICES=" + o.visible()},
			})
		}
	}
	return steps
}

// bench is a step that is a case of this program's benchmarks.
func (o options) bench(name string, need, limit time.Duration) step {
	return step{
		name: "bench " + name, need: need, limit: limit, lines: true, last: report.AllDone,
		argv: []string{o.self, "bench", "-device", string(o.at), "-rounds", strconv.Itoa(o.rounds), "-only", name},
	}
}

// env tells tests which GPU is meant.
func (o options) env() []string { return []string{"WEFT_GPU=" + o.ordinal()} }

func (o options) ordinal() string { return strings.TrimPrefix(string(o.at), "cuda:") }

// visible is what PyTorch is shown, so that its first GPU is ours.
func (o options) visible() string {
	id, err := o.at.ID()
	if err != nil {
		return ""
	}
	shown := strings.Split(os.Getenv("CUDA_VISIBLE_DEVICES"), ",")
	if shown[0] == "" || id.Index >= len(shown) {
		return strconv.Itoa(id.Index)
	}
	return shown[id.Index]
}

// find finds a program by its name, or at a path.
func find(name string, more ...string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, path := range more {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

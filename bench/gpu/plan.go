package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// plan lists the steps, the most important first, so that a budget that is too small costs the least.
func plan(o options) []step {
	test := func(name string, limit time.Duration, file string, more ...string) step {
		argv := append([]string{file, "-test.timeout=" + (limit - time.Second).String()}, more...)
		return step{name: name, limit: limit, argv: argv, env: o.env(), must: true}
	}
	steps := []step{
		test("driver", time.Minute, "testgpu.test", "-test.skip=TestAFault"),
		test("fault", time.Minute, "testgpu.test", "-test.run=TestAFault/a_fault"),
		test("kernels", 3*time.Minute, "gpu.test"),
		test("generated kernels", 2*time.Minute, "gen.test", "-test.skip=TextsAreAsReviewed"),
		test("gradients", 2*time.Minute, "autodiff.test", "-test.run=TestOnAGPU"),
		test("device maps", 2*time.Minute, "gpus.test"),
		test("training", 2*time.Minute, "digits.test", "-test.run=Accelerator|OnGPUs|BFloat16|FirstFifty|ReachesItsAccuracy"),
		o.bench("correct", 2*time.Minute),
	}
	steps[len(steps)-1].must = true
	steps = append(steps, benchSteps(o, 1)...)
	if tool := find("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer"); tool != "" && o.at != interpreter {
		steps = append(steps, step{
			name: "sanitizer", limit: 3 * time.Minute, env: o.env(), long: true,
			// Results that are no success are asked for: by tests of errors, and to count a kernel's parameters.
			argv: []string{tool, "--error-exitcode=9", "--report-api-errors=no", "--launch-timeout=60", o.file("gpu.test"), "-test.short", "-test.run=" + sanitized},
		})
	}
	return append(steps, benchSteps(o, 2)...)
}

// sanitized is what compute-sanitizer looks at: it makes kernels a hundred times slower.
const sanitized = "TestEveryInstruction.*/(MatMul|Conv2d|MaxPool2d|Softmax|LayerNorm|CrossEntropy|Gather|ScatterAdd|Map|Reduce|Transpose|Update|Random)"

// benchSteps are the benchmarks in turns with PyTorch's.
func benchSteps(o options, round int) (steps []step) {
	python := find("python3")
	for _, name := range []string{"copy", "bound", "small", "large", "gpt", "product", "launch", "split"} {
		s := o.bench(name, 2*time.Minute)
		s.name += " " + strconv.Itoa(round)
		steps = append(steps, s)
		if python != "" && name != "launch" && name != "split" && o.at != interpreter {
			steps = append(steps, step{
				name: "torch " + name + " " + strconv.Itoa(round), limit: 2 * time.Minute, lines: true, aside: true,
				argv: []string{python, "gpu.py", "--only", name, "--rounds", strconv.Itoa(o.rounds)}, env: []string{"CUDA_VISIBLE_DEVICES=" + o.visible()},
			})
		}
	}
	return steps
}

// bench is a step that is a case of this program's benchmarks.
func (o options) bench(name string, limit time.Duration) step {
	return step{
		name: "bench " + name, limit: limit, lines: true, env: []string{selfEnv + "=1"},
		argv: []string{o.self, "bench", "-device", string(o.at), "-rounds", strconv.Itoa(o.rounds), "-only", name},
	}
}

// env tells tests which GPU is meant.
func (o options) env() []string { return []string{"WEFT_GPU=" + o.ordinal()} }

func (o options) ordinal() string { return strings.TrimPrefix(string(o.at), "cuda:") }

// visible is what PyTorch is shown, so that its first GPU is ours.
func (o options) visible() string {
	id, err := o.at.id()
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

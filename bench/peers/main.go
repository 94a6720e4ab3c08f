package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// system is one program that prints lines in the format of Go's benchmarks.
type system struct {
	name string
	dir  string
	argv []string
	env  []string // on top of one thread for everybody
}

func main() {
	rounds := flag.Int("rounds", 5, "how often each system runs")
	each := flag.Duration("time", time.Second, "for how long one benchmark runs in a round")
	python := flag.String("python", "/usr/bin/python3", "an interpreter that has torch; empty leaves torch out")
	only := flag.String("only", "", "jobs: two processes; local: one; store: a server and its clients; elastic: launchers; empty: all")
	flag.Parse()
	var run []system
	for _, k := range []struct {
		name string
		are  func(time.Duration, string) []system
	}{{"jobs", jobs}, {"local", locals}, {"store", stores}, {"elastic", elastics}} {
		if *only == "" || *only == k.name {
			run = append(run, k.are(*each, *python)...)
		}
	}
	if run == nil {
		fmt.Fprintf(os.Stderr, "peers: -only: expected jobs, local, store or elastic, got %q\n", *only)
		os.Exit(2)
	}
	var all samples
	for round := range *rounds {
		for _, s := range run {
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, *rounds, s.name)
			if err := all.run(s); err != nil {
				fmt.Fprintf(os.Stderr, "peers: %s is left out of this round: %v\n", s.name, err)
			}
		}
	}
	all.table(os.Stdout)
}

// widest asks both sides for the same kernels. Products matter little between processes, and much
// in one.
var widest = []string{"OPENBLAS_CORETYPE=SkylakeX", "ATEN_CPU_CAPABILITY=avx512"}

// locals are programs of one process: Weft, torch as it is installed, and torch told to use the
// widest vectors.
func locals(each time.Duration, python string) []system {
	all := []system{{"weft, one process", "bench/local", []string{"go", "test", "-run", "^$", "-bench", "^BenchmarkLocal$", "-benchtime", each.String(), "."}, nil}}
	if python == "" {
		return all
	}
	argv := []string{python, "local.py", fmt.Sprint(each.Seconds())}
	return append(all,
		system{"torch, one process", "bench/torch", append(slices.Clone(argv), "default"), nil},
		system{"torch, one process, AVX-512", "bench/torch", append(slices.Clone(argv), "avx512"), widest})
}

// stores are servers with their clients, which measure by counts and not by time.
func stores(_ time.Duration, python string) []system {
	all := []system{{"weft's store", ".", []string{"go", "run", "./bench/store"}, nil}}
	if python == "" {
		return all
	}
	return append(all, system{"torch's store", "bench/torch", []string{python, "store.py"}, nil})
}

// elastics is one program, which takes the launchers in turns itself.
func elastics(_ time.Duration, python string) []system {
	launchers := "weft,torchrun,weft-group"
	if python == "" {
		launchers, python = "weft,weft-group", "python3"
	}
	return []system{{"launchers", ".", []string{"go", "run", "./bench/elastic", "-launcher", launchers, "-python", python}, nil}}
}

// jobs are programs of two processes.
func jobs(each time.Duration, python string) []system {
	test := []string{"go", "test", "-run", "^$", "-bench", "^Benchmark(Call|Tensor|TLS|Pass|(Fast)?PipelineMLP)$", "-benchtime", each.String(), "."}
	all := []system{{"weft", "bench", test, widest}, {"grpc", "bench/grpc", test, widest}}
	if python == "" {
		return all
	}
	for _, mode := range []string{"default", "uv"} {
		for _, program := range []string{"rpc_call.py", "dist_autograd.py"} {
			all = append(all, system{"torch " + mode + ", " + program, "bench/torch", []string{python, program, mode, fmt.Sprint(each.Seconds())}, widest})
		}
	}
	return all
}

// samples are what was measured: row, column and metric, in the order of first sight.
type samples struct {
	rows, columns []string
	of            map[[3]string][]float64
}

func (all *samples) run(s system) error {
	cmd := exec.Command(s.argv[0], s.argv[1:]...)
	cmd.Dir = s.dir
	cmd.Env = append(append(os.Environ(), "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1"), s.env...)
	var errors bytes.Buffer
	cmd.Stderr = &errors
	out, err := cmd.Output()
	for line := range strings.Lines(string(out)) {
		all.line(line)
	}
	if err != nil {
		return fmt.Errorf("%w\n%s%s", err, out[max(0, len(out)-2000):], errors.Bytes())
	}
	return nil
}

// line takes in "BenchmarkCall/lane=quic/empty-2 100 12345 ns/op 12.3 p50-µs …"; others are
// skipped.
func (all *samples) line(line string) {
	fields := strings.Fields(line)
	if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
		return
	}
	name := strings.TrimPrefix(fields[0], "Benchmark")
	if i := strings.LastIndexByte(name, '-'); i > 0 { // the number of processors
		if _, err := strconv.Atoi(name[i+1:]); err == nil {
			name = name[:i]
		}
	}
	kind, rest, _ := strings.Cut(name, "/")
	column := "go-tls"
	if lane, ok := strings.CutPrefix(rest, "lane="); ok {
		column, rest, _ = strings.Cut(lane, "/")
	}
	row := strings.TrimSuffix(kind+"/"+rest, "/")
	if kind == "TLS" {
		row = "Tensor/" + rest
	}
	for i := 2; i+1 < len(fields); i += 2 {
		v, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return
		}
		all.addRow(row, column, fields[i+1], v)
	}
}

func (all *samples) addRow(row, column, metric string, v float64) {
	if all.of == nil {
		all.of = map[[3]string][]float64{}
	}
	if !slices.Contains(all.rows, row) {
		all.rows = append(all.rows, row)
	}
	if !slices.Contains(all.columns, column) {
		all.columns = append(all.columns, column)
	}
	key := [3]string{row, column, metric}
	all.of[key] = append(all.of[key], v)
}

// median of what was measured, with its range; n is 0 where nothing was.
func (all *samples) median(row, column, metric string) (mid, least, most float64, n int) {
	v := slices.Sorted(slices.Values(all.of[[3]string{row, column, metric}]))
	if len(v) == 0 {
		return 0, 0, 0, 0
	}
	return v[len(v)/2], v[0], v[len(v)-1], len(v)
}

// table prints, per row, the metric that counts: GB/s of tensors, calls/s of many calls, and the
// median time of one. "to beat" is the peers' best.
func (all *samples) table(w io.Writer) {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer out.Flush()
	fmt.Fprintln(out, "benchmark\tmetric\tlane\tmedian\trange\trounds\tagainst the best of the peers")
	for _, row := range all.rows {
		metric, higher := "p50-µs", false
		switch {
		case strings.HasPrefix(row, "Tensor/"):
			metric, higher = "GB/s", true
		case strings.Contains(row, "inflight"):
			metric, higher = "calls/s", true
		case strings.HasPrefix(row, "Pass/"):
			metric, higher = "passes/s", true
		case strings.HasSuffix(row, "PipelineMLP"):
			metric, higher = "steps/s", true
		case strings.HasPrefix(row, "Local/"):
			metric = "ns/op"
		case strings.HasPrefix(row, "Store/cpu/"):
			metric = "cpu-µs"
		case strings.Contains(row, "/clients="):
			metric, higher = "ops/s", true
		case strings.HasPrefix(row, "Store/wake"), strings.HasPrefix(row, "Store/multi_get"), strings.HasPrefix(row, "Elastic/"):
			metric = "ms"
		case strings.HasPrefix(row, "Store/memory"):
			metric = "KiB"
		}
		best := all.bestPeer(row, metric, higher)
		for _, column := range all.columns {
			mid, least, most, n := all.median(row, column, metric)
			if n == 0 {
				continue
			}
			ratio := ""
			if best > 0 && !isPeer(column) {
				better := best / mid
				if higher {
					better = mid / best
				}
				ratio = fmt.Sprintf("%.2f× as good", better)
			}
			fmt.Fprintf(out, "%s\t%s\t%s\t%.4g\t%.4g..%.4g\t%d\t%s\n", row, metric, column, mid, least, most, n, ratio)
		}
	}
	ratios(out, all)
}

func isPeer(column string) bool {
	return strings.HasPrefix(column, "grpc") || strings.HasPrefix(column, "torch")
}

func (all *samples) bestPeer(row, metric string, higher bool) float64 {
	var meds []float64
	for _, column := range all.columns {
		if mid, _, _, n := all.median(row, column, metric); n > 0 && isPeer(column) {
			meds = append(meds, mid)
		}
	}
	if len(meds) == 0 {
		return 0
	}
	if higher {
		return slices.MaxFunc(meds, cmp.Compare[float64])
	}
	return slices.MinFunc(meds, cmp.Compare[float64])
}

// ratio is one of the promises: ours over theirs, or where there is no row of theirs ours alone, at
// most or at least a bound.
type ratio struct {
	row, metric, ours string
	theirRow, theirs  string
	bound             float64
	atLeast           bool
}

var promises = []ratio{
	{"Call/empty", "p50-µs", "local", "Call/empty", "torch-default", 1.0 / 6, false},
	{"Call/empty", "p50-µs", "local", "Call/empty-torchscript", "torch-default", 1.0 / 3, false},
	{"Call/empty", "p50-µs", "quic", "Call/empty", "torch-uv", 1.0 / 4, false},
	{"Call/empty", "p50-µs", "quic", "Call/empty-torchscript", "torch-uv", 1.0 / 2, false},
	{"Call/inflight=64", "calls/s", "local", "Call/inflight=64", "torch-default", 6, true},
	{"Call/inflight=64", "calls/s", "local", "Call/inflight=64-torchscript", "torch-default", 3, true},
	{"Tensor/bytes=16MiB", "GB/s", "local", "Tensor/bytes=16MiB", "torch-default", 1.5, true},
	{"Tensor/bytes=16MiB", "GB/s", "bulk", "Tensor/bytes=16MiB", "go-tls", 0.8, true},
	{"Pass/size=3x3", "passes/s", "local", "Pass/size=3x3", "torch-default", 8, true},
	{"Pass/size=3x3", "passes/s", "quic", "Pass/size=3x3", "torch-uv", 4, true},
	{"Pass/size=1024x1024", "passes/s", "local", "Pass/size=1024x1024", "torch-default", 2, true},
	{"PipelineMLP", "steps/s", "local", "PipelineMLP", "torch-default", 1.5, true},
	{"PipelineMLP", "steps/s", "quic", "PipelineMLP", "torch-uv", 1.5, true},
	{"Pass/size=3x3", "passes/s", "local", "Pass/size=3x3/mode=fast", "local", 0.9, true},
	{"PipelineMLP", "steps/s", "local", "FastPipelineMLP", "local", 0.9, true},
	{"Local/mlp", "ns/op", "weft", "Local/mlp", "torch-default", 0.8, false},
	{"Local/mlp", "ns/op", "weft", "Local/mlp", "torch-avx512", 1, false},
	{"Local/block", "ns/op", "weft", "Local/block", "torch-default", 0.9, false},
	{"Local/block", "ns/op", "weft", "Local/block", "torch-avx512", 0.9, false},
	{"Local/convnet", "ns/op", "weft", "Local/convnet", "torch-default", 1, false},
	{"Local/convnet", "ns/op", "weft", "Local/convnet", "torch-avx512", 1, false},
	{"Local/add3x3-taped", "ns/op", "weft", "Local/add3x3-taped", "torch-default", 1.0 / 3, false},
	{"Local/chain100-backward", "ns/op", "weft", "Local/chain100-backward", "torch-default", 1.0 / 3, false},
	{"Store/add", "p50-µs", "weft", "Store/add", "torch", 1 / 1.5, false},
	{"Store/compare_set", "p50-µs", "weft", "Store/compare_set", "torch", 1 / 1.5, false},
	{"Store/wait", "p50-µs", "weft", "Store/wait", "torch", 1 / 1.5, false},
	{"Store/get", "p50-µs", "weft", "Store/get", "torch", 1 / 2.5, false},
	{"Store/add/clients=16", "ops/s", "weft", "Store/add/clients=16", "torch", 2, true},
	{"Store/get/clients=16", "ops/s", "weft", "Store/get/clients=16", "torch", 3, true},
	{"Store/add/stalled=100", "p50-µs", "weft", "Store/add/stalled=0", "weft", 1.1, false},
	{"Store/wake/connections=10000", "ms", "weft", "", "", 1000, false},
	{"Store/memory/connections=10000", "KiB", "weft", "", "", 32, false},
	{"Elastic/end/agents=1/nnodes=1", "ms", "weft", "Elastic/end/agents=1/nnodes=1", "torchrun", 1.0 / 3, false},
	{"Elastic/end-but-last-call/agents=1/nnodes=1:2", "ms", "weft", "Elastic/end-but-last-call/agents=1/nnodes=1:2", "torchrun", 1.0 / 3, false},
	{"Elastic/end/agents=2/nnodes=1:2", "ms", "weft", "Elastic/end/agents=2/nnodes=1:2", "torchrun", 1.0 / 3, false},
	{"Elastic/replace/agents=1/nnodes=1", "ms", "weft", "Elastic/replace/agents=1/nnodes=1", "torchrun", 1.0 / 3, false},
	{"Elastic/replace/agents=1/nnodes=1:2", "ms", "weft", "Elastic/replace/agents=1/nnodes=1:2", "torchrun", 1.0 / 3, false},
	{"Elastic/replace/agents=2/nnodes=1:2", "ms", "weft", "Elastic/replace/agents=2/nnodes=1:2", "torchrun", 1.0 / 3, false},
	{"Elastic/replace/agents=1/nnodes=1", "ms", "weft-group", "Elastic/replace/agents=1/nnodes=1", "torchrun", 1.0 / 3, false},
	{"Elastic/replace/agents=1/nnodes=1:2", "ms", "weft-group", "Elastic/replace/agents=1/nnodes=1:2", "torchrun", 1.0 / 3, false},
	{"Elastic/replace/agents=2/nnodes=1:2", "ms", "weft-group", "Elastic/replace/agents=2/nnodes=1:2", "torchrun", 1.0 / 3, false},
}

func ratios(out io.Writer, all *samples) {
	fmt.Fprintln(out, "\nours\tover\tis\twanted\t")
	for _, r := range promises {
		a, _, _, n := all.median(r.row, r.ours, r.metric)
		b, _, _, m := all.median(r.theirRow, r.theirs, r.metric)
		if r.theirRow == "" {
			b, m, r.theirs = 1, 1, r.metric
		}
		if n == 0 || m == 0 {
			fmt.Fprintf(out, "%s %s\t%s %s\tnot measured\t\t\n", r.ours, r.row, r.theirs, r.theirRow)
			continue
		}
		word, kept := "at most", a/b <= r.bound
		if r.atLeast {
			word, kept = "at least", a/b >= r.bound
		}
		verdict := "yes"
		if !kept {
			verdict = "NO"
		}
		fmt.Fprintf(out, "%s %s\t%s %s\t%.3g\t%s %.3g\t%s\n", r.ours, r.row, r.theirs, r.theirRow, a/b, word, r.bound, verdict)
	}
}

package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-project/weft/bench/gpu/internal/flags"
)

// note is a line about what may make the results others than they should be.
type note struct {
	Case string `json:"case"`
	Text string `json:"text"`
}

// The questions to nvidia-smi of which the answers are read.
const (
	gpuQuery = "index,name,compute_mode,mig.mode.current,memory.total,memory.used,utilization.gpu"
	appQuery = "gpu_uuid,pid,process_name,used_memory"
)

var errSilent = errors.New("it did not answer in time")

// machineMain is the verb machine: what there is to say of a machine without opening the driver.
func machineMain(c context.Context, args []string, stdout, stderr io.Writer) error {
	if err := flags.Parse(flag.NewFlagSet("gpucheck machine", flag.ContinueOnError), args, stderr); err != nil {
		return err
	}
	return describe(c, 10*time.Second, stdout)
}

// describe describes the machine. Each program that it asks has so long to answer.
func describe(c context.Context, wait time.Duration, stdout io.Writer) error {
	say := json.NewEncoder(stdout)
	ask := func(argv ...string) (string, error) {
		c, cancel := context.WithTimeout(c, wait)
		defer cancel()
		cmd := exec.CommandContext(c, argv[0], argv[1:]...)
		cmd.WaitDelay = time.Second
		out, err := cmd.CombinedOutput()
		if errors.Is(c.Err(), context.DeadlineExceeded) {
			err = errSilent
		}
		fmt.Fprintf(stdout, "$ %s\n%s\n", strings.Join(argv, " "), strings.TrimSpace(string(out)))
		if err != nil {
			fmt.Fprintln(stdout, err)
		}
		return string(out), err
	}
	fmt.Fprintf(stdout, "%s/%s, %d processors, %s\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	for _, file := range []string{"/proc/version", "/proc/driver/nvidia/version"} {
		text, _ := os.ReadFile(file)
		fmt.Fprint(stdout, string(text))
	}
	nodes, _ := filepath.Glob("/dev/nvidia*")
	fmt.Fprintln(stdout, strings.Join(nodes, " "))
	fmt.Fprintln(stdout, strings.Join(variables(os.Environ()), "\n"))
	if loader := find("ldconfig", "/sbin/ldconfig"); loader != "" {
		_, _ = ask("sh", "-c", loader+` -p | grep -E 'libcuda\.so|cublasLt|libnvidia-(ptxjitcompiler|ml)'; true`)
	}
	if find("nvidia-smi") == "" {
		return say.Encode(note{"note", "there is no nvidia-smi, so nobody can say who else uses the GPU"})
	}
	gpus, err := ask("nvidia-smi", "--query-gpu="+gpuQuery, "--format=csv,noheader,nounits")
	notes := []string{}
	if err != nil {
		notes = append(notes, "nvidia-smi: "+err.Error())
	}
	if !errors.Is(err, errSilent) {
		apps, _ := ask("nvidia-smi", "--query-compute-apps="+appQuery, "--format=csv,noheader,nounits")
		_, _ = ask("sh", "-c", "nvidia-smi -L; nvidia-smi")
		notes = append(notes, notesOf(gpus, apps)...)
	}
	for _, text := range notes {
		if err := say.Encode(note{"note", text}); err != nil {
			return err
		}
	}
	return nil
}

// telling are the variables that decide which GPUs and libraries are used. Others may hold secrets.
var telling = regexp.MustCompile(`^(CUDA_|CUBLAS|NVIDIA_|NCCL_|PYTORCH_|LD_LIBRARY_PATH=|LD_PRELOAD=|LIBCUDA_PATH=|WEFT_CUBLASLT=|WEFT_GPU=|OMP_NUM_THREADS=)`)

func variables(environ []string) (some []string) {
	for _, v := range environ {
		if telling.MatchString(v) {
			some = append(some, v)
		}
	}
	slices.Sort(some)
	return some
}

// Above this much memory in MiB, and this much of a GPU's time in hundredths, somebody else is
// taken to use it: the driver itself takes some.
const (
	idleMemory = 1024
	idleTime   = 5
)

// notesOf reads what nvidia-smi answers to both questions.
func notesOf(gpus, apps string) (notes []string) {
	for _, g := range table(gpus, strings.Count(gpuQuery, ",")+1) {
		which := fmt.Sprintf("GPU %s (%s)", g[0], g[1])
		if g[2] != "Default" {
			notes = append(notes, which+" is in compute mode "+g[2]+": not every process may use it")
		}
		if g[3] == "Enabled" {
			notes = append(notes, which+" is cut into slices (MIG)")
		}
		if n, err := strconv.Atoi(g[5]); err == nil && n > idleMemory {
			notes = append(notes, fmt.Sprintf("of %s, others hold %s of %s MiB", which, g[5], g[4]))
		}
		if n, err := strconv.Atoi(g[6]); err == nil && n > idleTime {
			notes = append(notes, fmt.Sprintf("%s is busy before anything has begun: %s %%", which, g[6]))
		}
	}
	for _, a := range table(apps, strings.Count(appQuery, ",")+1) {
		notes = append(notes, fmt.Sprintf("process %s (%s) holds %s MiB of %s", a[1], a[2], a[3], a[0]))
	}
	return notes
}

// table is the rows of text that have so many columns; the rest is what a program says instead.
func table(text string, columns int) (rows [][]string) {
	for line := range strings.Lines(text) {
		r := csv.NewReader(strings.NewReader(line))
		r.TrimLeadingSpace = true
		if row, err := r.Read(); err == nil && len(row) == columns {
			rows = append(rows, row)
		}
	}
	return rows
}

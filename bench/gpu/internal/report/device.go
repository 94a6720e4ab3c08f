package report

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-project/weft/bench/gpu/internal/flags"
	"github.com/weft-project/weft/bench/gpu/internal/places"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/kernels/gpu"
)

// GPU is what there is to know of a GPU before anything runs on it.
type GPU struct {
	Case       string             `json:"case"` // gpu: the report is a line as those of benchmarks
	Name       string             `json:"name"`
	UUID       string             `json:"uuid"`
	Arch       int                `json:"arch"` // compute capability, times ten
	Driver     int                `json:"driver"`
	Processors int                `json:"multiprocessors"`
	Memory     int                `json:"memory"`
	Free       int                `json:"free"`
	Shared     int                `json:"shared_memory"`
	Library    string             `json:"cublaslt"` // where it is and its version, or why there is none
	LoadMS     map[string]float64 `json:"load_ms"`  // how long the driver takes for each module of PTX
	LoadErrors map[string]string  `json:"load_errors,omitempty"`
	Refused    map[string]string  `json:"experiments_refused,omitempty"` // why modules of experiments cannot be loaded
	Host       string             `json:"host"`
}

// absent is the report where there is none.
type absent struct {
	Case  string `json:"case"`
	Error string `json:"error"`
	None  bool   `json:"none"` // no driver, or no GPU: there is nothing to check
}

// Device is the verb device. It prints what is known before modules are loaded, and all once
// they are; and to stderr, what is next, as the driver may not come back.
func Device(_ context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("gpucheck device", flag.ContinueOnError)
	at := places.Place("cuda:0")
	f.Var(&at, "device", "cuda:N or interpreter")
	if err := flags.Parse(f, args, stderr, at.Check); err != nil {
		return err
	}
	say := json.NewEncoder(stdout)
	r, err := report(at, func(r *GPU) { _ = say.Encode(r) }, func(what string) { fmt.Fprintln(stderr, progress+what) })
	if err != nil {
		none := errors.Is(err, cuda.ErrNoDriver) || errors.Is(err, device.ErrNoDevice)
		return errors.Join(err, say.Encode(absent{"gpu", err.Error(), none}))
	}
	if err := say.Encode(r); err != nil {
		return err
	}
	if len(r.LoadErrors) > 0 {
		return fmt.Errorf("kernels cannot be loaded: %v", r.LoadErrors)
	}
	return nil
}

// report asks a GPU. Early is what is known before modules are loaded; next is told what is done
// next.
func report(at places.Place, early func(*GPU), next func(what string)) (*GPU, error) {
	next("opening the driver")
	d, err := at.Driver()
	if err != nil {
		return nil, err
	}
	i := d.Info()
	r := &GPU{
		Case: "gpu", Name: i.Name, UUID: i.UUID, Arch: i.Arch, Driver: i.Driver, Processors: i.Processor, Memory: i.Memory, Shared: i.Shared,
		LoadMS: map[string]float64{}, LoadErrors: map[string]string{}, Refused: map[string]string{},
		Host: fmt.Sprintf("%s/%s, %d processors, %s%s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), kernelModule("/proc/driver/nvidia/version")),
	}
	next("asking for its free memory")
	if r.Free, err = d.Room(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	early(r)
	r.timeLoading(d, next)
	next("opening cuBLASLt")
	r.Library = at.Library()
	next("closing the driver")
	return r, d.Close()
}

// ReportIn is the report that a line is; nil where it is none.
func ReportIn(line map[string]any) *GPU {
	raw, err := json.Marshal(line)
	r := new(GPU)
	if err != nil || json.Unmarshal(raw, r) != nil || r.Name == "" {
		return nil
	}
	return r
}

// Notes are what of a report may make the results others than they should be.
func (r *GPU) Notes() (notes []string) {
	if r.Free < r.Memory*9/10 {
		notes = append(notes, fmt.Sprintf("of the GPU's memory %.1f of %.1f GiB are free: another process uses it", float64(r.Free)/(1<<30), float64(r.Memory)/(1<<30)))
	}
	if r.Library == places.NoLibrary {
		notes = append(notes, "this is the interpreter, in tiny sizes: times say nothing of a GPU")
	}
	if strings.Contains(r.Name, " MIG ") {
		notes = append(notes, "this is a slice of a GPU (MIG): its figures are a slice's")
	}
	for _, name := range slices.Sorted(maps.Keys(r.Refused)) {
		notes = append(notes, fmt.Sprintf("the module %s, of an experiment, cannot be loaded: %s", name, r.Refused[name]))
	}
	return notes
}

// kernelModule is what the file says of the driver's part in the kernel; nothing where there is
// none.
func kernelModule(file string) string {
	text, _ := os.ReadFile(file)
	version := regexp.MustCompile(`\d+\.\d+(\.\d+)?`).Find(text)
	if version == nil {
		return ""
	}
	return ", driver " + string(version)
}

var target = regexp.MustCompile(`\.target sm_(\d+)(a?)`)

// timeLoading times the loading of each module that is for such a GPU, as programs load them.
func (r *GPU) timeLoading(d cuda.Driver, next func(what string)) {
	for name, text := range gpu.Modules() {
		errs := r.LoadErrors
		if m := target.FindSubmatch(text); m != nil {
			if arch, _ := strconv.Atoi(string(m[1])); arch > d.Info().Arch || len(m[2]) > 0 && arch != d.Info().Arch {
				continue // nobody asks for it there
			}
			if len(m[2]) > 0 { // others stand in for it
				errs = r.Refused
			}
		}
		next("loading the kernels of " + name)
		began := time.Now()
		m, _, _, err := gpu.Load(d, name)
		r.LoadMS[name] = float64(time.Since(began).Microseconds()) / 1e3
		if err == nil {
			err = m.Unload()
		}
		if err != nil {
			errs[name] = err.Error()
		}
	}
}

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/native"
	"github.com/weft-project/weft/kernels/gpu/cu"
)

// gpuReport is what there is to know of a GPU before anything runs on it.
type gpuReport struct {
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
	Host       string             `json:"host"`
}

// deviceMain is the verb device.
func deviceMain(_ context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("gpucheck device", flag.ContinueOnError)
	at := place("cuda:0")
	f.Var(&at, "device", "cuda:N or interpreter")
	if err := parse(f, args, stderr, at.check); err != nil {
		return err
	}
	r, err := reportOf(at)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(stdout).Encode(r); err != nil {
		return err
	}
	if len(r.LoadErrors) > 0 {
		return fmt.Errorf("kernels cannot be loaded: %v", r.LoadErrors)
	}
	return nil
}

func reportOf(at place) (*gpuReport, error) {
	d, err := at.driver()
	if err != nil {
		return nil, err
	}
	defer d.Close()
	i := d.Info()
	r := &gpuReport{
		Name: i.Name, UUID: i.UUID, Arch: i.Arch, Driver: i.Driver, Processors: i.Processor, Memory: i.Memory, Shared: i.Shared,
		LoadMS: map[string]float64{}, LoadErrors: map[string]string{},
		Host: fmt.Sprintf("%s/%s, %d processors, %s%s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), kernelModule("/proc/driver/nvidia/version")),
	}
	if r.Free, err = d.Room(); err != nil {
		return nil, err
	}
	r.load(d)
	r.Library = "none: this is the interpreter"
	if at != interpreter {
		path, version, err := native.Library()
		r.Library = fmt.Sprintf("%s, version %d", path, version)
		if err != nil {
			r.Library = err.Error()
		}
	}
	return r, nil
}

// kernelModule is what the file says of the driver's part in the kernel; nothing where there is none.
func kernelModule(file string) string {
	text, _ := os.ReadFile(file)
	version := regexp.MustCompile(`\d+\.\d+(\.\d+)?`).Find(text)
	if version == nil {
		return ""
	}
	return ", driver " + string(version)
}

var target = regexp.MustCompile(`\.target sm_(\d+)`)

// load times the loading of each module that is for such a GPU.
func (r *gpuReport) load(d cuda.Driver) {
	for _, name := range slices.Sorted(maps.Keys(cu.Modules())) {
		text := cu.Module(name)
		if m := target.FindSubmatch(text); m != nil {
			if arch, _ := strconv.Atoi(string(m[1])); arch > d.Info().Arch {
				continue // nobody asks for it there
			}
		}
		began := time.Now()
		m, err := d.Load(text)
		r.LoadMS[name] = float64(time.Since(began).Microseconds()) / 1e3
		if err == nil {
			err = m.Unload()
		}
		if err != nil {
			r.LoadErrors[name] = err.Error()
		}
	}
}

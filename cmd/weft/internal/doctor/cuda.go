package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/native"
	"github.com/weft-project/weft/kernels/gpu"
)

// examineCUDA looks for GPUs, and for the library of their products, and unless quick asks how much
// of their memory is free, for which each is taken into use.
func examineCUDA(quick bool) []finding {
	gpus, err := native.List()
	if err != nil || len(gpus) == 0 {
		return judgeGPUs(gpus, nil, err)
	}
	var rooms []room
	if !quick {
		rooms = make([]room, len(gpus))
		var all sync.WaitGroup
		for k := range gpus {
			all.Go(func() { rooms[k] = roomOf(k) })
		}
		all.Wait()
	}
	path, version, err := native.Library()
	return append(judgeGPUs(gpus, rooms, nil), judgeLibrary(path, version, err), judgeCache(os.Getenv))
}

// judgeCache looks where the driver keeps what it compiles of generated kernels.
func judgeCache(getenv func(string) string) finding {
	dir := getenv("CUDA_CACHE_PATH")
	if dir == "" {
		dir = filepath.Join(getenv("HOME"), ".nv", "ComputeCache")
	}
	if off := getenv("CUDA_CACHE_DISABLE"); off != "" && off != "0" {
		return finding{poor, "cuda cache", "CUDA_CACHE_DISABLE is set: each run compiles generated kernels anew"}
	}
	if !filepath.IsAbs(dir) {
		return finding{poor, "cuda cache", "there is no HOME: each run compiles generated kernels anew; name a folder in CUDA_CACHE_PATH"}
	}
	at := dir
	for _, err := os.Stat(at); err != nil && filepath.Dir(at) != at; _, err = os.Stat(at) {
		at = filepath.Dir(at) // the driver makes what is missing
	}
	if probe, err := os.CreateTemp(at, ".weft-doctor-*"); err != nil {
		return finding{poor, "cuda cache", fmt.Sprintf("%s cannot be written: each run compiles generated kernels anew; name a folder in CUDA_CACHE_PATH", dir)}
	} else {
		_ = errors.Join(probe.Close(), os.Remove(probe.Name()))
	}
	return finding{good, "cuda cache", dir}
}

// room is how much of a GPU's memory is free.
type room struct {
	free int
	err  error
}

func roomOf(ordinal int) (r room) {
	d, err := native.Open(ordinal)
	if err != nil {
		return room{0, err}
	}
	r.free, r.err = d.Room()
	r.err = errors.Join(r.err, d.Close())
	return r
}

// judge says how much of a GPU is used. Who uses it may be the doctor itself, with some 500 MiB.
func (r room) judge(g cuda.Info) (v verdict, text string) {
	const gib = 1 << 30
	switch {
	case errors.Is(r.err, device.ErrMemory):
		return poor, "; its memory is full: end what else uses it (nvidia-smi lists that)"
	case r.err != nil:
		return poor, "; it cannot be used: " + r.err.Error()
	}
	used, text := g.Memory-r.free, fmt.Sprintf(", %.1f free", float64(r.free)/gib)
	if used > g.Memory/10 && used > gib {
		return poor, text + fmt.Sprintf("; other work uses %.1f GiB", float64(used)/gib)
	}
	return good, text
}

// judgeGPUs says what GPUs there are; rooms may be nil.
func judgeGPUs(gpus []cuda.Info, rooms []room, err error) []finding {
	switch {
	case err != nil:
		return []finding{{poor, "cuda", "everything runs on the CPU: " + err.Error()}}
	case len(gpus) == 0:
		return []finding{{poor, "cuda", "everything runs on the CPU: the driver shows no CUDA-capable device (CUDA_VISIBLE_DEVICES may hide them)"}}
	}
	var out []finding
	for k, g := range gpus {
		f := finding{good, "cuda", fmt.Sprintf("cuda:%d is %s, %.1f GiB, sm_%d, with a driver for CUDA %d.%d", k, g.Name, float64(g.Memory)/(1<<30),
			g.Arch, g.Driver/1000, g.Driver%1000/10)}
		switch {
		case g.Arch < gpu.OldestArch:
			f.verdict, f.text = poor, f.text+fmt.Sprintf("; it cannot be used: kernels need sm_%d or later", gpu.OldestArch)
		case rooms != nil:
			var more string
			f.verdict, more = rooms[k].judge(g)
			f.text += more
		}
		out = append(out, f)
	}
	return out
}

func judgeLibrary(path string, version int, err error) finding {
	if err != nil {
		return finding{poor, "cublaslt", "products of matrices run on Weft's own kernels, which are slower: " + err.Error()}
	}
	return finding{good, "cublaslt", fmt.Sprintf("%s, version %d.%d.%d", path, version/10000, version/100%100, version%100)}
}

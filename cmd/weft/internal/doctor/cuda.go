package doctor

import (
	"fmt"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/native"
)

// oldestArch is the compute capability, times ten, that the kernels need.
const oldestArch = 75

// examineCUDA looks for GPUs, and for the library of their products.
func examineCUDA() []finding {
	gpus, err := native.List()
	if err != nil || len(gpus) == 0 {
		return judgeGPUs(gpus, err)
	}
	path, version, err := native.Library()
	return append(judgeGPUs(gpus, nil), judgeLibrary(path, version, err))
}

func judgeGPUs(gpus []cuda.Info, err error) []finding {
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
		if g.Arch < oldestArch {
			f.verdict, f.text = poor, f.text+fmt.Sprintf("; it cannot be used: kernels need sm_%d or later", oldestArch)
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

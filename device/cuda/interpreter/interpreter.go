// Package interpreter opens a GPU that is a program: it runs the same PTX as a GPU, on the host's
// processor, about ten thousand times slower. With it, programs for GPUs are tried and tested where
// there is none.
//
// It is stricter than a GPU. A kernel that leaves its memory, or whose threads race for shared
// memory, fails with an error that names the kernel and the line.
package interpreter

import (
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/ptx"
)

// Open makes a GPU of its own with 1 GiB of memory and the abilities of an H200. Its
// [cuda.Info] says that it is simulated.
func Open() cuda.Driver { return ptx.New(ptx.Config{}) }

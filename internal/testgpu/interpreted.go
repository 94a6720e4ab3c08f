//go:build !gpu || !gpucheck

package testgpu

import (
	"testing"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
)

// Real says that tests run on a real GPU.
func Real() bool { return false }

// Open gives a driver of the GPU, which whoever uses it closes. The configuration is the
// interpreter's, which may look closer than a GPU does.
func Open(_ testing.TB, c ptx.Config) cuda.Driver { return ptxtest.New(c) }

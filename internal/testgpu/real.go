//go:build gpu && gpucheck

package testgpu

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/native"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
)

// variable numbers the GPU, or is interpreter.
const variable = "WEFT_GPU"

// Real says that tests run on a real GPU.
func Real() bool { return os.Getenv(variable) != "interpreter" }

// Open gives a driver of the GPU, which whoever uses it closes. The configuration is the
// interpreter's, and of no use on a real one.
func Open(t testing.TB, c ptx.Config) cuda.Driver {
	t.Helper()
	if !Real() {
		return ptxtest.New(c)
	}
	ordinal, err := kept()
	if err != nil {
		t.Fatal(err)
	}
	d, err := native.Open(ordinal)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// kept is the GPU's number. Its context is kept for as long as the process lives: tests open the
// GPU hundreds of times, and to make a context takes tenths of a second.
var kept = sync.OnceValues(func() (ordinal int, err error) {
	if text := os.Getenv(variable); text != "" {
		if ordinal, err = strconv.Atoi(text); err != nil {
			return 0, fmt.Errorf("%s=%q: it must be a number from 0 on, or interpreter", variable, text)
		}
	}
	_, err = native.Open(ordinal)
	return ordinal, err
})

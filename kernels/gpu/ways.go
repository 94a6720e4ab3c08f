package gpu

import (
	"errors"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/kernels"
)

// What is counted: products and their epilogues, when they are made ready; graphs, when they are recorded.
const (
	workProduct  = "product"
	workEpilogue = "epilogue"
	workBF16     = "bfloat16 product"
	workGraph    = "graph"

	byLibrary  = "library"
	byKernels  = "kernels"
	byFloat32  = "float32"
	byRecord   = "recording"
	byLaunches = "launches"

	whyNoLibrary   = "there is no library"
	whyLacks       = "the library lacks it"
	whyNoMemory    = "there is no memory for the library"
	whyFailed      = "the library failed"
	whyLies        = "the library cannot read it as it lies"
	whyPieces      = "its sums come in pieces"
	whyWidth       = "float32 with a bfloat16 result"
	whyNoCores     = "the GPU has no tensor cores"
	whyNoRecording = "the driver cannot record it"
	whyGraphMemory = "there is no memory for a graph"
	whyGraphVain   = "its memory does not come back"
)

var _ kernels.Surveyor = (*backend)(nil)

// Ways is [kernels.Surveyor]'s.
func (b *backend) Ways() []kernels.Way { return b.tally.Ways() }

// refusal is why a library that failed with an error does not make a product, which kernels can then make all the same; empty where they cannot.
func refusal(err error) string {
	for _, r := range []struct {
		is  error
		why string
	}{{cuda.ErrNoLibrary, whyNoLibrary}, {cuda.ErrNoProduct, whyLacks}, {device.ErrMemory, whyNoMemory}, {cuda.ErrLaunch, whyFailed}} {
		if errors.Is(err, r.is) {
			return r.why
		}
	}
	return ""
}

package gpu

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/kernels"
)

// What is counted: products and their epilogues, when they are made ready; graphs, when they are
// recorded; modules, when they are loaded.
const (
	workProduct   = "product"
	workEpilogue  = "epilogue"
	workBF16      = "bfloat16 product"
	workFP8       = "FP8 product"
	workAttention = "bfloat16 attention"
	workGraph     = "graph"
	workModule    = "module"

	byLibrary  = "library"
	byKernels  = "kernels"
	byFloat32  = "float32"
	byBFloat16 = "bfloat16"
	byHopper   = "wgmma"
	byUnits    = "mma.sync"
	byRecord   = "recording"
	byLaunches = "launches"
	byCubin    = "machine code"
	byPTX      = "PTX"

	whyNoLibrary    = "there is no library"
	whyLacks        = "the library lacks it"
	whyNoMemory     = "there is no memory for the library"
	whyFailed       = "the library failed"
	whyLies         = "the library cannot read it as it lies"
	whyPieces       = "its sums come in pieces"
	whyWidth        = "float32 with a bfloat16 result"
	whyNoCores      = "the GPU has no tensor cores"
	whyNoScales     = "the GPU is not of compute capability 9.x"
	whySmall        = "it is small"
	whyOdd          = "its sizes are no multiples of 16"
	whyEpilogue     = "the library lacks the epilogue in e4m3"
	whySum          = "a sum of products in e4m3 is two kernels"
	whyExtent       = "heads of no multiple of 8 elements, or of more than 256"
	whyNotHopper    = "the GPU is not of compute capability 9.0"
	whyBeside       = "a mask, or weights that are dropped"
	whyFoursExtent  = "heads of 65 to 96 elements, or of more than 128"
	whyNoKeys       = "there are no keys"
	whyNoMaps       = "the driver cannot describe operands that lie so"
	whyFailedModule = "the driver does not take the kernel"
	whyNoRecording  = "the driver cannot record it"
	whyGraphMemory  = "there is no memory for a graph"
	whyGraphVain    = "its memory does not come back"
	whyNoCubin      = "there is no machine code for the GPU"
	whyGenerated    = "it was generated for the program's shapes"
	whyFailedCubin  = "the driver does not take the machine code"
)

var _ kernels.Surveyor = (*backend)(nil)

// Ways is [kernels.Surveyor]'s.
func (b *backend) Ways() []kernels.Way { return b.tally.list() }

// tally counts ways. The zero value is ready; it is safe for concurrent use.
type tally struct {
	mu   sync.Mutex
	ways []kernels.Way
}

// add counts work that was done once. err is the reason, where that is an error.
func (t *tally) add(work, by, why string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := slices.IndexFunc(t.ways, func(w kernels.Way) bool { return w.Work == work && w.By == by && w.Why == why })
	if k < 0 {
		k, t.ways = len(t.ways), append(t.ways, kernels.Way{Work: work, By: by, Why: why})
	}
	t.ways[k].Times++
	if err != nil {
		t.ways[k].Last = err.Error()
	}
}

// list gives them in order of Work, By and Why.
func (t *tally) list() []kernels.Way {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.Clone(t.ways)
	slices.SortFunc(all, func(a, b kernels.Way) int {
		return cmp.Or(cmp.Compare(a.Work, b.Work), cmp.Compare(a.By, b.By), cmp.Compare(a.Why, b.Why))
	})
	return all
}

// refusal is why a library that failed with an error does not make a product, which kernels can
// then make all the same; empty where they cannot.
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

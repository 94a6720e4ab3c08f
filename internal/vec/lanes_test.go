//go:build goexperiment.simd && amd64

package vec

import (
	"flag"
	"regexp"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/twintest"
)

var update = flag.Bool("update", false, "write the narrow loops anew")

// With half as many lanes in every name, the loops of AVX-512 are those of AVX2. (A vector cannot
// be a type parameter.)
func TestTheNarrowLoopsAreTheWideOnes(t *testing.T) {
	width := regexp.MustCompile(`([A-Za-z]|64x|32x)(16|8)\b`)
	half := func(w string) string {
		if n, wide := strings.CutSuffix(w, "16"); wide {
			return n + "8"
		}
		return w[:len(w)-1] + "4"
	}
	for _, name := range []string{"loops", "math", "steps", "table"} {
		twintest.Check(t, name+"16.go", name+"8.go", func(s string) string { return width.ReplaceAllStringFunc(s, half) }, *update)
	}
}

func TestConstantsBeginOnACacheLine(t *testing.T) {
	require.Zero(t, uintptr(unsafe.Pointer(newConstants()))%64)
}

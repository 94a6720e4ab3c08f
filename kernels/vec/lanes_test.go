//go:build goexperiment.simd && amd64

package vec

import (
	"flag"
	"os"
	"regexp"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the narrow loops anew")

// With half as many lanes in every name, the loops of AVX-512 are those of AVX2. (A vector cannot be a type parameter.)
func TestTheNarrowLoopsAreTheWideOnes(t *testing.T) {
	width := regexp.MustCompile(`([A-Za-z]|64x|32x)(16|8)\b`)
	for _, name := range []string{"loops", "math", "steps", "table"} {
		wide, err := os.ReadFile(name + "16.go")
		require.NoError(t, err)
		narrow := width.ReplaceAllFunc(wide, func(w []byte) []byte {
			s := string(w)
			if n := len(s) - 2; n > 0 && s[n:] == "16" {
				return []byte(s[:n] + "8")
			}
			return []byte(s[:len(s)-1] + "4")
		})
		narrow = append([]byte("// Code generated from "+name+"16.go by go test -run Narrow -update; DO NOT EDIT.\n\n"), narrow...)
		if *update {
			require.NoError(t, os.WriteFile(name+"8.go", narrow, 0o644))
		}
		have, err := os.ReadFile(name + "8.go")
		require.NoError(t, err)
		require.Equal(t, string(narrow), string(have))
	}
}

func TestConstantsBeginOnACacheLine(t *testing.T) {
	require.Zero(t, uintptr(unsafe.Pointer(newConstants()))%64)
}

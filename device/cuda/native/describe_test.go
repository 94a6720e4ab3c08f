//go:build gpu && cgo && linux && (amd64 || arm64)

package native

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device/cuda"
)

// realLibraries are NVIDIA's: make gpu-descriptors names them.
var realLibraries = flag.String("cublaslt", "", "paths of cuBLASLt, separated by commas, which are to take all descriptors; none: the fake one alone")

// allSpecs are products of all types, epilogues and ways to lie.
func allSpecs() (all []cuda.ProductSpec) {
	for _, kind := range []cuda.ProductSpec{
		{}, {Arithmetic: cuda.TF32}, {In: cuda.F64, Out: cuda.F64}, {In: cuda.BF16}, {In: cuda.BF16, Out: cuda.BF16}, {In: cuda.F16}, {In: cuda.F16, Out: cuda.F16},
		{In: cuda.E4M3, ScaleA: 512, ScaleB: 768}, {In: cuda.E4M3, Out: cuda.BF16, ScaleA: 512, ScaleB: 768}, {In: cuda.E4M3, InB: cuda.E5M2, Out: cuda.BF16, ScaleA: 512, ScaleB: 768},
	} {
		for e := cuda.None; e <= cuda.BGradB; e++ {
			for way := range 16 {
				s := kind
				s.Epilogue, s.M, s.N, s.K, s.TransA, s.TransB = e, 24, 40, 16, way&1 != 0, way&2 != 0
				if s.In.Scaled() {
					s.M, s.N = 32, 48
				}
				if way&4 != 0 {
					s.Batch, s.StrideA, s.StrideB, s.StrideC, s.StrideD, s.StrideAux = 3, 3001, 3003, 3005, 3005, 8192
				}
				if way&8 != 0 {
					s.LDA, s.LDB, s.LDC, s.LDD, s.Align = 41, 43, 45, 45, max(s.In.Size(), s.Out.Size())
				}
				if s, err := s.Filled(); err == nil { // the gradient of a bias is one product's
					all = append(all, s)
				}
			}
		}
	}
	return all
}

func TestAllDescriptorsAreTakenByTheLibrary(t *testing.T) {
	paths := []string{os.Getenv("WEFT_CUBLASLT")} // the fake's
	if *realLibraries != "" {
		paths = append(paths, strings.Split(*realLibraries, ",")...)
	}
	for _, path := range paths {
		b, err := openBLAS([]string{path})
		require.NoError(t, err)
		all := allSpecs()
		require.Len(t, all, 7*(16*16-4*8)+10)
		for _, s := range all {
			if b.scales || !s.In.Scaled() {
				require.NoError(t, b.describes(s), "%+v", s)
			}
		}
		fmt.Printf("%s, version %d, takes %d descriptors\n", path, b.version(), len(all))
		require.ErrorContains(t, b.describes(cuda.ProductSpec{M: 2, N: 2, K: 2, LDB: 1}), "LDB must be at least", "nothing is asked that cannot be")
	}
}

//go:build gpu && linux && (amd64 || arm64)

package native

/*
#include "lt.h"
*/
import "C"

import (
	"fmt"

	"github.com/weft-project/weft/device/cuda"
)

const (
	oldestBLAS, newestBLAS = 110000, 139999
	scalingBLAS            = 120900 // the first with scales of 128 elements
)

// checkVersion says why a library cannot be used: it is of a version whose numbers nobody has
// compared with those of lt.c, or does not take what that describes.
func (b *blas) checkVersion() error {
	v := b.version()
	if b.scales = v >= scalingBLAS; v < oldestBLAS || v > newestBLAS {
		return fmt.Errorf("%s is of version %d; expected 11 to 13, which are %d to %d", b.path, v, oldestBLAS, newestBLAS)
	}
	for _, s := range []cuda.ProductSpec{
		{M: 8, N: 8, K: 8, Batch: 2, StrideA: 64, StrideB: 64, StrideC: 64, StrideD: 64, StrideAux: 64, In: cuda.BF16, Out: cuda.BF16, Epilogue: cuda.GELUAuxBias},
		{M: 8, N: 8, K: 8, Arithmetic: cuda.TF32, Epilogue: cuda.ReLUBias, TransA: true},
	} {
		if err := b.describes(s); err != nil {
			return fmt.Errorf("%s, of version %d, does not take Weft's descriptors: %w", b.path, b.version(), err)
		}
	}
	return nil
}

// describes has the library take a product's descriptors. It needs no GPU, as nothing is chosen.
func (b *blas) describes(s cuda.ProductSpec) error {
	s, err := s.Filled()
	if err != nil {
		return err
	}
	c := columns(s)
	var p *C.weft_product
	var workspace C.size_t
	if r := C.weft_lt_prepare(b.lt, nil, nil, &c, &p, &workspace); r.code != 0 {
		return b.failed(r, fmt.Sprintf("product %d×%d×%d", s.M, s.N, s.K))
	}
	C.weft_lt_free(p)
	return nil
}

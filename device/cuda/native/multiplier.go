//go:build gpu && linux && (amd64 || arm64)

package native

/*
#include "lt.h"
#include <stdlib.h>

#cgo noescape weft_lt_prepare
*/
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/internal/search"
)

// blas is cuBLASLt, opened.
type blas struct {
	lt     *C.weft_lt
	path   string
	scales bool // its version knows those of 128 elements
}

// theBLAS opens cuBLASLt; there is one per process.
var theBLAS = sync.OnceValues(func() (*blas, error) {
	driver := 0
	if library() == nil {
		driver, _ = version() // 0: all that there are are tried
	}
	return openBLAS(libraries(search.This(), driver))
})

// openBLAS opens the first of several that there is.
func openBLAS(paths []string) (*blas, error) {
	var errs []string
	for _, path := range paths {
		name := C.CString(path)
		defer C.free(unsafe.Pointer(name))
		var lt *C.weft_lt
		var why [512]C.char
		if C.weft_lt_open(name, &lt, &why[0], C.size_t(len(why))) != 0 {
			errs = append(errs, C.GoString(&why[0]))
			continue
		}
		b := &blas{lt: lt, path: path}
		err := b.checkVersion()
		if err == nil {
			return b, nil
		}
		errs = append(errs, err.Error())
	}
	return nil, &cuda.Error{Op: "open cuBLASLt", Err: cuda.ErrNoLibrary, Text: "install libcublas of CUDA 11.8 or later (apt's libcublas, or pip's nvidia-cublas), " +
		"or name libcublasLt.so in WEFT_CUBLASLT: " + strings.Join(errs, "; ")}
}

func (b *blas) version() int { return int(C.weft_lt_version(b.lt)) }

// Library says where cuBLASLt was found, and its version.
func Library() (path string, version int, err error) {
	b, err := theBLAS()
	if err != nil {
		return "", 0, err
	}
	return b.path, b.version(), nil
}

// failed is the error of what became of some calls of the library.
func (b *blas) failed(r C.weft_result, text string) error {
	if r.code < C.WEFT_LT {
		return told(r, text)
	}
	status := r.code - C.WEFT_LT
	e := &cuda.Error{Op: C.GoString(r.op), Text: fmt.Sprintf("%s: cuBLASLt says %s (%d)", text, C.GoString(C.weft_lt_status(b.lt, r.code)), status)}
	switch status {
	case 1:
		e.Err = cuda.ErrNoLibrary
		e.Text += "; its version must be one that the driver serves"
	case 3:
		e.Err = device.ErrMemory
	case 7, 8, 15: // invalid, not of this architecture, not supported
		e.Err = cuda.ErrNoProduct
	case 13, 14:
		e.Err = cuda.ErrLaunch
	}
	return e
}

// multiplier is cuBLASLt on a GPU.
type multiplier struct {
	b      *blas
	handle unsafe.Pointer

	mu    sync.Mutex
	known map[cuda.ProductSpec]answer
}

// answer is what the library said about a spec.
type answer struct {
	p   *product
	err error
}

// product is a prepared product.
type product struct {
	d         *driver
	name      string
	handle    *C.weft_product
	workspace int
}

// Name is Func's.
func (p *product) Name() string { return p.name }

// Workspace is Product's.
func (p *product) Workspace() int { return p.workspace }

// multiplier opens the library when it is first asked for.
func (d *driver) multiplier() (*multiplier, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.multiply != nil {
		return d.multiply, nil
	}
	b, err := theBLAS()
	if err != nil {
		return nil, err
	}
	m := &multiplier{b: b, known: map[cuda.ProductSpec]answer{}}
	if r := C.weft_lt_create(b.lt, d.context(), &m.handle); r.code != 0 {
		return nil, b.failed(r, b.path)
	}
	d.multiply = m
	return m, nil
}

// productFailure is the error of a launch that the library refused.
func (d *driver) productFailure(r C.weft_result, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.multiply.b.failed(r, name)
}

func (d *driver) closeMultiplier() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.multiply
	if m == nil {
		return nil
	}
	d.multiply = nil
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.known {
		if a.p != nil {
			C.weft_lt_free(a.p.handle)
		}
	}
	if r := C.weft_lt_destroy(m.b.lt, d.context(), m.handle); r.code != 0 {
		return m.b.failed(r, m.b.path)
	}
	return nil
}

// Product is Multiplier's. What the library refused is kept, too.
func (d *driver) Product(spec cuda.ProductSpec) (cuda.Product, error) {
	spec, err := spec.Filled()
	if err != nil {
		return nil, err
	}
	if err := d.enter("cublasLtCreate"); err != nil {
		return nil, err
	}
	defer d.exit()
	m, err := d.multiplier()
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok := m.known[spec]
	if !ok {
		a.p, a.err = m.prepare(d, spec)
		if a.err == nil || errors.Is(a.err, cuda.ErrNoProduct) {
			m.known[spec] = a
		}
	}
	if a.err != nil {
		return nil, a.err
	}
	return a.p, nil
}

func (m *multiplier) prepare(d *driver, s cuda.ProductSpec) (*product, error) {
	p := &product{d: d, name: fmt.Sprintf("product %d×%d×%d", s.M, s.N, s.K)}
	if s.In.Scaled() && !m.b.scales {
		return nil, &cuda.Error{Op: p.name, Err: cuda.ErrNoProduct, Text: m.b.path + " knows no scales of 128 elements, as versions from 12.9 on do"}
	}
	var workspace C.size_t
	c := columns(s)
	if r := C.weft_lt_prepare(m.b.lt, d.context(), m.handle, &c, &p.handle, &workspace); r.code != 0 {
		return nil, m.b.failed(r, p.name)
	}
	p.workspace = int(workspace)
	return p, nil
}

// columns is a spec as the library takes it. A row-major matrix is its transpose in column-major
// order, so that D is op(B)ᵀ·op(A)ᵀ there: A and B change places, and so do rows and columns.
func columns(s cuda.ProductSpec) C.weft_spec {
	bit := func(b bool) C.int32_t {
		if b {
			return 1
		}
		return 0
	}
	types := [...]C.int32_t{cuda.F32: 0, cuda.F64: 1, cuda.BF16: 14, cuda.F16: 2, cuda.E4M3: 28, cuda.E5M2: 29}
	scale, compute := C.int32_t(0), C.int32_t(68)
	switch {
	case s.In == cuda.F64:
		scale, compute = 1, 70
	case s.Arithmetic == cuda.TF32:
		compute = 77
	}
	if !s.Accumulate { // C is not read, and D's address stands for it
		s.LDC, s.StrideC = s.LDD, s.StrideD
	}
	return C.weft_spec{
		m: C.uint64_t(s.N), n: C.uint64_t(s.M), k: C.uint64_t(s.K),
		lda: C.int64_t(s.LDB), ldb: C.int64_t(s.LDA), ldc: C.int64_t(s.LDC), ldd: C.int64_t(s.LDD), ldaux: C.int64_t(s.LDAux),
		stride_a: C.int64_t(s.StrideB), stride_b: C.int64_t(s.StrideA), stride_c: C.int64_t(s.StrideC), stride_d: C.int64_t(s.StrideD),
		stride_aux: C.int64_t(s.StrideAux), most_workspace: C.uint64_t(s.MaxWorkspace), batch: C.int32_t(s.Batch),
		trans_a: bit(s.TransB), trans_b: bit(s.TransA), type_in: types[s.InB], type_in_b: types[s.In], type_out: types[s.Out], type_scale: scale, compute: compute,
		epilogue: epilogue(s.Epilogue), align: C.uint32_t(s.Align),
		has_bias: bit(s.Epilogue.HasBias()), has_aux: bit(s.Epilogue.HasAux()), accumulate: bit(s.Accumulate),
		scale_a: C.int64_t(s.ScaleB), scale_b: C.int64_t(s.ScaleA),
	}
}

// epilogue is the library's number. Its A is our B.
func epilogue(e cuda.Epilogue) C.uint32_t {
	return [...]C.uint32_t{
		cuda.None: 1, cuda.Bias: 4, cuda.ReLU: 2, cuda.ReLUBias: 6, cuda.ReLUAux: 130, cuda.ReLUAuxBias: 134,
		cuda.GELU: 32, cuda.GELUBias: 36, cuda.GELUAux: 160, cuda.GELUAuxBias: 164,
		cuda.DReLU: 136, cuda.DReLUBGrad: 152, cuda.DGELU: 192, cuda.DGELUBGrad: 208, cuda.BGradA: 512, cuda.BGradB: 256,
	}[e]
}

//go:build (darwin || freebsd || linux) && (amd64 || arm64)

package blas

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/cpu"

	"github.com/weft-project/weft/device"
)

// openBLASPaths are tried in order; plain names are looked up as the system's loader does.
var openBLASPaths = []string{
	"libopenblas.so.0", "libopenblas.so",
	"/usr/lib/x86_64-linux-gnu/libopenblas.so.0", "/usr/lib/aarch64-linux-gnu/libopenblas.so.0",
	"/usr/lib64/libopenblas.so.0", "/usr/lib/libopenblas.so.0", "/usr/local/lib/libopenblas.so.0",
	"/opt/OpenBLAS/lib/libopenblas.so.0", "/usr/local/lib/libopenblas.so",
	"/opt/homebrew/opt/openblas/lib/libopenblas.dylib", "/usr/local/opt/openblas/lib/libopenblas.dylib",
}

// fortranBLAS calls a BLAS library with 32-bit integers, by the Fortran interface: it takes nothing
// but pointers, which purego passes on without an allocation.
type fortranBLAS struct {
	s, d  uintptr
	calls *sync.Pool // of *fortranCall
}

// fortranCall is what the pointers of a call point to, and the pointers, so that the collector
// knows of them.
type fortranCall struct {
	transA, transB byte
	m, n, k        int32
	lda, ldb, ldc  int32
	alphaS, betaS  float32
	alphaD, betaD  float64
	a, b, c        unsafe.Pointer
	args           [15]uintptr // the last two: the lengths of the strings
}

// openBLAS looks for OpenBLAS; the choice carries an error where there is none.
func openBLAS() choice {
	setenv, err := libcSetenv()
	if err != nil {
		return choice{err: err}
	}
	// The library reads its environment, which is C's, when it is opened. Threads are this
	// package's own.
	setenv("OPENBLAS_NUM_THREADS", "1", 1)
	setenv("OMP_NUM_THREADS", "1", 1)
	core := openBLASCore(os.Getenv)
	if core != "" {
		setenv(coreVariable, core, 1)
	}
	return openFirst(openBLASPaths, core)
}

const coreVariable = "OPENBLAS_CORETYPE"

// openBLASCore is for which processor OpenBLAS should have its kernels: the user's word, or what
// this one can run. OpenBLAS knows processors by their model, and uses the slowest kernels it has
// on one that is newer than itself.
func openBLASCore(getenv func(string) string) string {
	x := cpu.X86
	switch core := getenv(coreVariable); {
	case core != "":
		return core
	case x.HasAVX512F && x.HasAVX512CD && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL:
		return "SkylakeX"
	case x.HasAVX2 && x.HasFMA:
		return "Haswell"
	}
	return ""
}

func libcSetenv() (setenv func(name, value string, overwrite int32) int32, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("setenv: %v", p)
		}
	}()
	at, err := purego.Dlsym(purego.RTLD_DEFAULT, "setenv")
	if err == nil {
		purego.RegisterFunc(&setenv, at)
	}
	return setenv, err
}

func openFirst(paths []string, core string) choice {
	var errs []error
	for _, path := range paths {
		found, err := openBLASAt(path, core)
		if err == nil {
			return found
		}
		errs = append(errs, err)
	}
	// The loader's word on the first name says most; the others are fallbacks.
	return choice{err: fmt.Errorf("%w (and %d more places)", errs[0], len(errs)-1)}
}

// openBLASAt opens one library, which was asked for the kernels of a core. purego panics where it
// cannot make a function of a symbol.
func openBLASAt(path, wanted string) (c choice, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: %v", path, p)
		}
	}()
	lib, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return c, err
	}
	g := fortranBLAS{calls: &sync.Pool{New: func() any { return new(fortranCall) }}}
	var config, core func() string
	var setThreads func(n int32)
	var errS, errD error
	g.s, errS = purego.Dlsym(lib, "sgemm_")
	g.d, errD = purego.Dlsym(lib, "dgemm_")
	if err = errors.Join(errS, errD); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	details := []string{path}
	if bind(lib, "openblas_get_config", &config) == nil {
		details = append(details, config())
	}
	if bind(lib, "openblas_get_corename", &core) == nil {
		details = append(details, coreDetail(core(), wanted))
	}
	if bind(lib, "openblas_set_num_threads", &setThreads) == nil {
		setThreads(1)
	}
	return choice{gemmer: g, name: "openblas", detail: strings.Join(details, "; ")}, nil
}

// coreDetail tells of kernels that were not those that were wanted.
func coreDetail(core, wanted string) string {
	if wanted == "" || strings.EqualFold(core, wanted) {
		return "core " + core
	}
	return fmt.Sprintf("core %s, because this OpenBLAS does not know %s, which was asked for: a newer one may be faster", core, wanted)
}

// bind makes the function that fn points to call a symbol.
func bind(lib uintptr, symbol string, fn any) error {
	at, err := purego.Dlsym(lib, symbol)
	if err == nil {
		purego.RegisterFunc(fn, at)
	}
	return err
}

func (g fortranBLAS) sgemm(p Product, a, b, c []float32) {
	if !p.fits32() {
		gonumBLAS{}.sgemm(p, a, b, c)
		return
	}
	call(g, g.s, p, a, b, c)
}

func (g fortranBLAS) dgemm(p Product, a, b, c []float64) {
	if !p.fits32() {
		gonumBLAS{}.dgemm(p, a, b, c)
		return
	}
	call(g, g.d, p, a, b, c)
}

// call computes cᵀ = op(b)ᵀ·op(a)ᵀ: Fortran stores by columns, and sees every matrix transposed.
func call[T device.Float](g fortranBLAS, fn uintptr, p Product, a, b, c []T) {
	x := g.calls.Get().(*fortranCall)
	*x = fortranCall{transA: 'N', transB: 'N', m: int32(p.M), n: int32(p.N), k: int32(p.K), lda: int32(p.LDA), ldb: int32(p.LDB),
		ldc: int32(p.LDC), alphaS: 1, alphaD: 1}
	if p.TransA {
		x.transA = 'T'
	}
	if p.TransB {
		x.transB = 'T'
	}
	if p.Add {
		x.betaS, x.betaD = 1, 1
	}
	x.a, x.b, x.c = unsafe.Pointer(&a[0]), unsafe.Pointer(&b[0]), unsafe.Pointer(&c[0])
	alpha, beta := unsafe.Pointer(&x.alphaS), unsafe.Pointer(&x.betaS)
	if unsafe.Sizeof(*new(T)) == 8 {
		alpha, beta = unsafe.Pointer(&x.alphaD), unsafe.Pointer(&x.betaD)
	}
	x.args = [15]uintptr{uintptr(unsafe.Pointer(&x.transB)), uintptr(unsafe.Pointer(&x.transA)),
		uintptr(unsafe.Pointer(&x.n)), uintptr(unsafe.Pointer(&x.m)), uintptr(unsafe.Pointer(&x.k)), uintptr(alpha),
		uintptr(x.b), uintptr(unsafe.Pointer(&x.ldb)), uintptr(x.a), uintptr(unsafe.Pointer(&x.lda)), uintptr(beta),
		uintptr(x.c), uintptr(unsafe.Pointer(&x.ldc)), 1, 1}
	purego.SyscallN(fn, x.args[:]...)
	x.a, x.b, x.c = nil, nil, nil // which also keeps them until here
	g.calls.Put(x)
}

// cut depends on the extents alone: the library's kernels sum in another order at the edges of what
// they are given. Pieces are large, because each has its operands arranged anew.
func (fortranBLAS) cut(p Product) (rows, cols int) { return p.halved(1<<24, 1024) }

func (p Product) fits32() bool { return max(p.M, p.N, p.K, p.LDA, p.LDB, p.LDC) <= math.MaxInt32 }

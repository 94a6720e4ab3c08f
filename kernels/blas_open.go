//go:build (darwin || freebsd || linux) && (amd64 || arm64)

package kernels

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/cpu"
)

// openBLASPaths are tried in order; plain names are looked up as the system's loader does.
var openBLASPaths = []string{
	"libopenblas.so.0", "libopenblas.so",
	"/usr/lib/x86_64-linux-gnu/libopenblas.so.0", "/usr/lib/aarch64-linux-gnu/libopenblas.so.0",
	"/usr/lib64/libopenblas.so.0", "/usr/lib/libopenblas.so.0", "/usr/local/lib/libopenblas.so.0",
	"/opt/OpenBLAS/lib/libopenblas.so.0", "/usr/local/lib/libopenblas.so",
	"/opt/homebrew/opt/openblas/lib/libopenblas.dylib", "/usr/local/opt/openblas/lib/libopenblas.dylib",
}

// nativeBLAS calls a CBLAS library with 32-bit integers.
type nativeBLAS struct {
	s func(order, ta, tb, m, n, k int32, alpha float32, a unsafe.Pointer, lda int32, b unsafe.Pointer, ldb int32,
		beta float32, c unsafe.Pointer, ldc int32)
	d func(order, ta, tb, m, n, k int32, alpha float64, a unsafe.Pointer, lda int32, b unsafe.Pointer, ldb int32,
		beta float64, c unsafe.Pointer, ldc int32)
}

// openBLAS looks for OpenBLAS; the choice carries an error where there is none.
func openBLAS() blasChoice {
	setenv, err := libcSetenv()
	if err != nil {
		return blasChoice{err: err}
	}
	// The library reads its environment, which is C's, when it is opened. Threads are this package's own.
	setenv("OPENBLAS_NUM_THREADS", "1", 1)
	setenv("OMP_NUM_THREADS", "1", 1)
	core := openBLASCore(os.Getenv)
	if core != "" {
		setenv(coreVariable, core, 1)
	}
	return openFirst(openBLASPaths, core)
}

const coreVariable = "OPENBLAS_CORETYPE"

// openBLASCore is for which processor OpenBLAS should have its kernels: the user's word, or what this one can run. OpenBLAS knows processors
// by their model, and uses the slowest kernels it has on one that is newer than itself.
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

func openFirst(paths []string, core string) blasChoice {
	var errs []error
	for _, path := range paths {
		found, err := openBLASAt(path, core)
		if err == nil {
			return found
		}
		errs = append(errs, err)
	}
	// The loader's word on the first name says most; the others are fallbacks.
	return blasChoice{err: fmt.Errorf("%w (and %d more places)", errs[0], len(errs)-1)}
}

// openBLASAt opens one library, which was asked for the kernels of a core. purego panics where it cannot make a function of a symbol.
func openBLASAt(path, wanted string) (c blasChoice, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: %v", path, p)
		}
	}()
	lib, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return c, err
	}
	var g nativeBLAS
	var config, core func() string
	var setThreads func(n int32)
	err = errors.Join(bind(lib, "cblas_sgemm", &g.s), bind(lib, "cblas_dgemm", &g.d))
	if err != nil {
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
	return blasChoice{gemmer: g, name: "openblas", detail: strings.Join(details, "; ")}, nil
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

// The constants of the CBLAS interface.
const (
	cblasRowMajor = 101
	cblasNoTrans  = 111
	cblasTrans    = 112
)

func (g nativeBLAS) sgemm(p product, a, b, c []float32) {
	if !p.fits32() {
		gonumBLAS{}.sgemm(p, a, b, c)
		return
	}
	ta, tb, beta := p.cblas()
	g.s(cblasRowMajor, ta, tb, int32(p.m), int32(p.n), int32(p.k), 1, unsafe.Pointer(&a[0]), int32(p.lda),
		unsafe.Pointer(&b[0]), int32(p.ldb), float32(beta), unsafe.Pointer(&c[0]), int32(p.ldc))
}

func (g nativeBLAS) dgemm(p product, a, b, c []float64) {
	if !p.fits32() {
		gonumBLAS{}.dgemm(p, a, b, c)
		return
	}
	ta, tb, beta := p.cblas()
	g.d(cblasRowMajor, ta, tb, int32(p.m), int32(p.n), int32(p.k), 1, unsafe.Pointer(&a[0]), int32(p.lda),
		unsafe.Pointer(&b[0]), int32(p.ldb), beta, unsafe.Pointer(&c[0]), int32(p.ldc))
}

func (p product) fits32() bool { return max(p.m, p.n, p.k, p.lda, p.ldb, p.ldc) <= math.MaxInt32 }

func (p product) cblas() (ta, tb int32, beta float64) {
	ta, tb = cblasNoTrans, cblasNoTrans
	if p.transA {
		ta = cblasTrans
	}
	if p.transB {
		tb = cblasTrans
	}
	if p.add {
		beta = 1
	}
	return ta, tb, beta
}

//go:build (darwin || freebsd || linux) && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/weft-project/weft/kernels/gpu/internal/cu"
)

// release is a version of the compiler: others make other PTX.
type release struct {
	soname, builtins, advice string
	major, minor             int32
}

func releaseOf(name string) release {
	if name == "12.9" {
		return release{"libnvrtc.so.12", "libnvrtc-builtins.so.12.9",
			"pip install nvidia-cuda-nvrtc-cu12==12.9.86, or set WEFT_NVRTC12 to the library's path", 12, 9}
	}
	return release{"libnvrtc.so.11.2", "libnvrtc-builtins.so.11.8",
		"pip install nvidia-cuda-nvrtc-cu11==11.8.89, or Debian's libnvrtc11.2 (non-free), or set WEFT_NVRTC to the library's path", 11, 8}
}

// compiler is NVRTC.
type compiler struct {
	version       func(major, minor *int32) int32
	create        func(prog *uintptr, src, name string, n int32, headers, names *uintptr) int32
	compileOf     func(prog uintptr, n int32, options *uintptr) int32
	logSize       func(prog uintptr, n *uint64) int32
	log           func(prog uintptr, to *byte) int32
	ptxSize       func(prog uintptr, n *uint64) int32
	ptx           func(prog uintptr, to *byte) int32
	destroy       func(prog *uintptr) int32
	errorString   func(code int32) string
	majorV, minor int32
}

// places are where the library may lie; the plain name is looked up as the system's loader does.
func places(soname string) []string {
	all := []string{soname, "/usr/local/cuda/lib64/" + soname}
	home, _ := os.UserHomeDir()
	for _, root := range []string{os.Getenv("VIRTUAL_ENV"), home + "/.local", "/usr/local", "/usr", home + "/.pyenv/versions/*"} {
		for _, packages := range []string{"site-packages", "dist-packages"} {
			found, _ := filepath.Glob(root + "/lib/python3*/" + packages + "/nvidia/cuda_nvrtc/lib/" + soname)
			all = append(all, found...)
		}
	}
	return all
}

// openNVRTC opens a release of the library at path, or where it is found.
func openNVRTC(name, path string) (*compiler, error) {
	r := releaseOf(name)
	paths := []string{path}
	if path == "" {
		paths = places(r.soname)
	}
	var errs []error
	for _, p := range paths {
		c, err := openAt(p, r)
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("NVRTC %s was not found: %s\n%w", name, r.advice, errors.Join(errs...))
}

func openAt(path string, r release) (c *compiler, err error) {
	defer func() {
		if p := recover(); p != nil { // purego's, for a function that is missing
			err = fmt.Errorf("%s: %v", path, p)
		}
	}()
	if strings.Contains(path, "/") { // the compiler opens its builtins by their plain name
		_, _ = purego.Dlopen(filepath.Join(filepath.Dir(path), r.builtins), purego.RTLD_NOW|purego.RTLD_GLOBAL)
	}
	lib, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err
	}
	c = new(compiler)
	for name, f := range map[string]any{
		"nvrtcVersion": &c.version, "nvrtcCreateProgram": &c.create, "nvrtcCompileProgram": &c.compileOf, "nvrtcGetProgramLogSize": &c.logSize,
		"nvrtcGetProgramLog": &c.log, "nvrtcGetPTXSize": &c.ptxSize, "nvrtcGetPTX": &c.ptx, "nvrtcDestroyProgram": &c.destroy,
		"nvrtcGetErrorString": &c.errorString,
	} {
		purego.RegisterLibFunc(f, lib, name)
	}
	c.version(&c.majorV, &c.minor)
	if c.majorV != r.major || c.minor != r.minor {
		return nil, fmt.Errorf("%s is NVRTC %d.%d; expected %d.%d", path, c.majorV, c.minor, r.major, r.minor)
	}
	return c, nil
}

// compile makes PTX. The error shows the compiler's own words.
func (c *compiler) compile(name string, source []byte, headers []cu.Header, options []string) ([]byte, error) {
	var keep cStrings
	defer keep.pinner.Unpin()
	texts, names := make([]uintptr, len(headers)+1), make([]uintptr, len(headers)+1) // one more than there are, to have an address
	for k, h := range headers {
		texts[k], names[k] = keep.intern(string(h.Text)), keep.intern(h.Name)
	}
	var prog uintptr
	if code := c.create(&prog, string(source), name, int32(len(headers)), &texts[0], &names[0]); code != 0 {
		return nil, fmt.Errorf("%s: %s", name, c.errorString(code))
	}
	defer c.destroy(&prog)
	args := make([]uintptr, len(options))
	for k, o := range options {
		args[k] = keep.intern(o)
	}
	if code := c.compileOf(prog, int32(len(args)), &args[0]); code != 0 {
		said, _ := text(prog, c.logSize, c.log)
		return nil, fmt.Errorf("%s: %s\n%s", name, c.errorString(code), said)
	}
	made, code := text(prog, c.ptxSize, c.ptx)
	if code != 0 {
		return nil, fmt.Errorf("%s: %s", name, c.errorString(code))
	}
	return made, nil
}

// text asks for the size of a text and then for the text, which ends with a 0.
func text(prog uintptr, size func(uintptr, *uint64) int32, read func(uintptr, *byte) int32) ([]byte, int32) {
	var n uint64
	if code := size(prog, &n); code != 0 || n == 0 {
		return nil, code
	}
	b := make([]byte, n)
	code := read(prog, &b[0])
	return b[:n-1], code
}

// cStrings is memory that C reads.
type cStrings struct {
	pinner runtime.Pinner
}

func (s *cStrings) intern(text string) uintptr {
	b := append([]byte(text), 0)
	s.pinner.Pin(&b[0])
	return uintptr(unsafe.Pointer(&b[0]))
}

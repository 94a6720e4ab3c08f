//go:build (darwin || freebsd || linux) && (amd64 || arm64)

// Command build compiles the CUDA sources of package cu, and of the interpreter's tests, to the PTX
// beside them, by NVRTC 11.8, and with -check compares instead: the PTX is committed, so that
// nobody who builds or runs Weft needs a toolkit. It needs no GPU and no CUDA driver.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/weft-project/weft/kernels/gpu/internal/cu"
)

func main() {
	dirs := flag.String("dirs", "kernels/gpu/internal/cu,device/cuda/ptx/testdata,device/cuda/cudatest/testdata", "where the sources lie, with the headers that they include")
	check := flag.Bool("check", false, "write nothing; fail where a source's PTX is not what lies beside it")
	lib := flag.String("nvrtc", os.Getenv("WEFT_NVRTC"), "path of libnvrtc.so.11.2; without it, it is looked for (also $WEFT_NVRTC)")
	flag.Parse()
	if err := run(strings.Split(*dirs, ","), *lib, *check); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
}

func run(dirs []string, lib string, check bool) error {
	var sources []string
	for _, dir := range dirs {
		found, err := filepath.Glob(filepath.Join(dir, "*.cu"))
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return fmt.Errorf("%s has no *.cu; run this in the repository's root, or give -dirs", dir)
		}
		sources = append(sources, found...)
	}
	c, err := openNVRTC(lib)
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range sources {
		errs = append(errs, one(c, path, check))
	}
	return errors.Join(errs...)
}

// one compiles a source, and writes or compares.
func one(c *compiler, path string, check bool) error {
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	headers, err := cu.Headers(source, func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(filepath.Dir(path), name)) })
	if err != nil {
		return err
	}
	name := filepath.Base(path)
	ptx, err := c.compile(name, source, headers, cu.Options(source))
	if err != nil {
		return err
	}
	ptx = append([]byte(cu.Stamp(name, source, headers)), uncommented(ptx)...)
	to := path[:len(path)-len(".cu")] + ".ptx"
	if !check {
		return os.WriteFile(to, ptx, 0o644)
	}
	was, err := os.ReadFile(to)
	if err == nil && !bytes.Equal(was, ptx) {
		err = fmt.Errorf("%s is not what NVRTC makes of %s; run go run ./kernels/gpu/internal/cu/build", to, name)
	}
	return err
}

// uncommented is PTX from its first directive on: what stands before names the build of the
// compiler.
func uncommented(ptx []byte) []byte {
	if at := bytes.Index(ptx, []byte("\n.version")); at >= 0 {
		return ptx[at+1:]
	}
	return ptx
}

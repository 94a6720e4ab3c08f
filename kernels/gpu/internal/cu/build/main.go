//go:build (darwin || freebsd || linux) && (amd64 || arm64)

package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/weft-project/weft/kernels/gpu/internal/cu"
)

func main() {
	dirs := flag.String("dirs", "kernels/gpu/internal/cu,internal/ptx/testdata,internal/cudatest/testdata", "where the sources lie, with the headers that they include")
	generated := flag.String("ahead", "kernels/gpu/internal/ahead", "where the texts of generated kernels lie, in testdata")
	check := flag.Bool("check", false, "write nothing; fail where the PTX of a source is not what is committed")
	lib := flag.String("nvrtc", os.Getenv("WEFT_NVRTC"), "path of libnvrtc.so.11.2; without it, it is looked for (also $WEFT_NVRTC)")
	lib12 := flag.String("nvrtc12", os.Getenv("WEFT_NVRTC12"), "path of libnvrtc.so.12, of 12.9, for sm_90a; likewise (also $WEFT_NVRTC12)")
	ptxas := flag.String("ptxas", os.Getenv("WEFT_PTXAS"), "path of ptxas 12.9; without it, it is looked for in PATH (also $WEFT_PTXAS)")
	flag.Parse()
	err := run(strings.Split(*dirs, ","), map[string]string{"11.8": *lib, "12.9": *lib12}, *ptxas, *check)
	if err == nil {
		err = buildAhead(*generated, *ptxas, *check)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
}

// run builds the folders with compilers at some paths, by their release.
func run(dirs []string, libs map[string]string, ptxas string, check bool) error {
	sources := map[string][]string{}
	for _, dir := range dirs {
		found, err := filepath.Glob(filepath.Join(dir, "*.cu"))
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return fmt.Errorf("%s has no *.cu; run this in the repository's root, or give -dirs", dir)
		}
		sources[dir] = found
	}
	c := map[string]*compiler{}
	var errs []error
	for _, name := range []string{"11.8", "12.9"} {
		var err error
		c[name], err = openNVRTC(name, libs[name])
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	a, err := openPTXAS(ptxas)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		errs = append(errs, build(c, a, sources[dir], filepath.Base(dir) != "testdata", check))
	}
	return errors.Join(errs...)
}

// build compiles the sources of a folder, and writes or compares: their archives, or a file beside
// each.
func build(c map[string]*compiler, a *assembler, sources []string, archived, check bool) error {
	var errs []error
	archives, all := map[string]map[string][]byte{}, map[string][]byte{}
	for _, path := range sources {
		archive, ptx, err := compile(c, path)
		to := strings.TrimSuffix(path, ".cu") + ".ptx"
		switch {
		case err != nil:
			errs = append(errs, err)
		case !archived && check:
			was, err := os.ReadFile(to)
			errs = append(errs, err, compare(to, was, ptx))
		case !archived:
			errs = append(errs, os.WriteFile(to, ptx, 0o644))
		default:
			if archives[archive] == nil {
				archives[archive] = map[string][]byte{}
			}
			archives[archive][filepath.Base(to)] = ptx
			all[strings.TrimSuffix(filepath.Base(path), ".cu")] = ptx
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if archived {
		cubins, err := a.cubins(filepath.Dir(sources[0]), all)
		if err != nil {
			return err
		}
		maps.Copy(archives, cubins)
	}
	return errors.Join(append(errs, store(archives, check))...)
}

// store writes archives, by their paths, or compares.
func store(archives map[string]map[string][]byte, check bool) error {
	var errs []error
	for path, files := range archives {
		if check {
			errs = append(errs, checkArchive(path, files))
		} else {
			errs = append(errs, writeArchive(path, files))
		}
	}
	return errors.Join(errs...)
}

// compile gives the PTX of a source, and the path of its archive.
func compile(c map[string]*compiler, path string) (archive string, ptx []byte, err error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return "", nil, err
	}
	dir, name := filepath.Split(path)
	headers, err := cu.Headers(source, func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, name)) })
	if err != nil {
		return "", nil, err
	}
	ptx, err = c[cu.Release(source)].compile(name, source, headers, cu.Options(source))
	if err != nil {
		return "", nil, err
	}
	return filepath.Join(dir, cu.Archive(source)), append([]byte(cu.Stamp(name, source, headers)), uncommented(ptx)...), nil
}

func writeArchive(path string, files map[string][]byte) error {
	var b bytes.Buffer
	if err := cu.Pack(&b, files); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// checkArchive compares what is packed: the bytes of an archive depend on the version of Go.
func checkArchive(path string, files map[string][]byte) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	had, err := cu.Unpack(b)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var errs []error
	for name, ptx := range files {
		errs = append(errs, compare(path+": "+name, had[name], ptx))
		delete(had, name)
	}
	for name := range had {
		errs = append(errs, fmt.Errorf("%s: %s has no source", path, name))
	}
	return errors.Join(errs...)
}

func compare(name string, was, is []byte) error {
	if !bytes.Equal(was, is) {
		return fmt.Errorf("%s is not what its source gives; run go run ./kernels/gpu/internal/cu/build", name)
	}
	return nil
}

// uncommented is PTX from its first directive on: what stands before names the build of the
// compiler.
func uncommented(ptx []byte) []byte {
	if at := bytes.Index(ptx, []byte("\n.version")); at >= 0 {
		return ptx[at+1:]
	}
	return ptx
}

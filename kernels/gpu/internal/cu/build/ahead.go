//go:build (darwin || freebsd || linux) && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/weft-project/weft/kernels/gpu/internal/ahead"
	"github.com/weft-project/weft/kernels/gpu/internal/cu"
	"github.com/weft-project/weft/kernels/gpu/internal/gen"
)

// buildAhead assembles the generated kernels whose texts lie in a folder's testdata, and writes or
// compares their archives.
func buildAhead(dir, ptxas string, check bool) error {
	paths, err := filepath.Glob(filepath.Join(dir, "testdata", "*.ptx"))
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return fmt.Errorf("%s has no testdata/*.ptx; run this in the repository's root, or give -ahead", dir)
	}
	a, err := openPTXAS(ptxas)
	if err != nil {
		return err
	}
	all := map[string]gen.Kernel{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, k := range gen.Bodies(string(text)) {
			all[ahead.Name(k)] = k
		}
	}
	var errs []error
	archives := map[string]map[string][]byte{}
	for _, arch := range cu.Archs() {
		files := map[string][]byte{}
		for name, k := range all {
			text, _ := ahead.Text(k)
			cubin, err := a.assemble(name, []byte(text), strconv.Itoa(arch))
			errs, files[name] = append(errs, err), cubin
		}
		archives[filepath.Join(dir, cu.CubinArchive(arch))] = files
	}
	return errors.Join(append(errs, store(archives, check))...)
}

//go:build (darwin || freebsd || linux) && (amd64 || arm64)

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/weft-project/weft/kernels/gpu/internal/cu"
)

// ptxasVersion is that of the assembler that makes all cubins: others make others.
const ptxasVersion = "V12.9.86"

// assembler makes cubins.
type assembler struct{ path string }

// openPTXAS finds the assembler, and looks whether it is the right one.
func openPTXAS(path string) (*assembler, error) {
	if path == "" {
		path = "ptxas"
	}
	said, err := exec.Command(path, "--version").Output() //nolint:gosec // the developer names it
	if err != nil || !bytes.Contains(said, []byte(ptxasVersion)) {
		return nil, fmt.Errorf("%s is not ptxas %s (%w): pip install nvidia-cuda-nvcc-cu12==12.9.86, and name its bin/ptxas by -ptxas or $WEFT_PTXAS",
			path, ptxasVersion, errors.Join(err, errors.New(strings.TrimSpace(string(said)))))
	}
	return &assembler{path}, nil
}

// cubins are archives of all modules of a folder, by the archive's path.
func (a *assembler) cubins(dir string, ptx map[string][]byte) (map[string]map[string][]byte, error) {
	all := map[string]map[string][]byte{}
	var errs []error
	for name, text := range ptx {
		to := map[string]string{}
		for _, arch := range cu.Archs() {
			to[cu.CubinArchive(arch)] = strconv.Itoa(arch)
		}
		if cu.Hopper(text) {
			to = map[string]string{cu.HopperArchive: "90a"}
		}
		for archive, arch := range to {
			cubin, err := a.assemble(name, text, arch)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			path := filepath.Join(dir, archive)
			if all[path] == nil {
				all[path] = map[string][]byte{}
			}
			all[path][name+".cubin"], all[path][name+".of"] = cubin, cu.OfPTX(text)
		}
	}
	return all, errors.Join(errs...)
}

// spilled is what the assembler says of a function that lacks registers.
var spilled = regexp.MustCompile(`Function properties for (\S+)\s+\d+ bytes stack frame, (\d+) bytes spill stores`)

// mostSpilled is how many bytes of registers a kernel may lack.
const mostSpilled = 32

// slowed is a line in which the assembler says that it undid what a kernel is written for: products
// of four warps wait for each other, or warps keep the registers that they were to pass on.
var slowed = regexp.MustCompile(`(?im)^.*(?:wgmma\S* .*serializ|setmaxnreg.* ignored|potential performance loss).*$`)

// assemble makes one. It is an error where a kernel lacks registers, but in float64, which GPUs are
// not for, and where it is slowed.
func (a *assembler) assemble(name string, ptx []byte, arch string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "weft-ptxas-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	in, out := filepath.Join(dir, "in.ptx"), filepath.Join(dir, "out.cubin")
	if err := os.WriteFile(in, ptx, 0o600); err != nil {
		return nil, err
	}
	said, err := exec.Command(a.path, "-v", "-arch=sm_"+arch, "-o", out, in).CombinedOutput() //nolint:gosec // likewise
	if err != nil {
		return nil, fmt.Errorf("%s for sm_%s: %w: %s", name, arch, err, said)
	}
	if line := slowed.Find(said); line != nil {
		return nil, fmt.Errorf("%s for sm_%s: %s", name, arch, bytes.TrimSpace(line))
	}
	for _, m := range spilled.FindAllSubmatch(said, -1) {
		if n, _ := strconv.Atoi(string(m[2])); n > mostSpilled && !bytes.HasSuffix(m[1], []byte("_f64")) {
			return nil, fmt.Errorf("%s for sm_%s: %s spills %d bytes; at most %d are allowed", name, arch, m[1], n, mostSpilled)
		}
	}
	return os.ReadFile(out)
}

package native

import (
	"path/filepath"
	"slices"
	"strings"
)

// cublasLt is the library's names, newest first.
var cublasLt = [...]struct {
	name string
	cuda int // of drivers that serve it, or later
}{{"libcublasLt.so.13", 13}, {"libcublasLt.so.12", 12}, {"libcublasLt.so.11", 11}}

// host is what is looked at of a machine: variables, files that match a pattern, and where a link
// leads.
type host struct {
	env  func(string) string
	glob func(string) []string
	link func(string) (string, error)
}

// libraries is where cuBLASLt may be: what WEFT_CUBLASLT names and nothing else, or, the newest
// first that a driver of so many thousandths serves (0: of all), by name alone (the loader's
// directories), in CUDA_HOME and CUDA_PATH, where toolkits are installed, and where Python's
// packages have it.
func libraries(h host, driver int) (out []string) {
	if path := h.env("WEFT_CUBLASLT"); path != "" {
		return []string{path}
	}
	patterns := h.places()
	for _, lib := range cublasLt {
		if driver > 0 && driver/1000 < lib.cuda {
			continue
		}
		out = append(out, lib.name)
		for _, pattern := range patterns {
			found := h.glob(filepath.Join(pattern, lib.name))
			slices.Sort(found)
			slices.Reverse(found) // newer versions of Python first
			out = append(out, found...)
		}
	}
	return out
}

// places are patterns of folders.
func (h host) places() []string {
	var out []string
	for _, home := range []string{h.env("CUDA_HOME"), h.env("CUDA_PATH")} {
		if home != "" {
			out = append(out, filepath.Join(home, "lib64"), filepath.Join(home, "targets", "*-linux", "lib"))
		}
	}
	out = append(out, "/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64")
	pythons := append([]string{h.env("VIRTUAL_ENV"), h.env("CONDA_PREFIX")}, h.pythons()...)
	for _, python := range append(pythons, "/usr/local", "/usr", "/opt/conda", filepath.Join(h.env("HOME"), ".local")) {
		if python != "" {
			for _, packages := range []string{"site-packages", "dist-packages"} {
				out = append(out, filepath.Join(python, "lib", "python3*", packages, "nvidia", "*", "lib"))
			}
		}
	}
	return out
}

// pythons is where the installations lie whose python3 is in PATH: an environment need not be
// activated, and its program may be reached by links.
func (h host) pythons() (out []string) {
	const links = 8
	for _, dir := range filepath.SplitList(h.env("PATH")) {
		at := filepath.Join(dir, "python3")
		for range links {
			if len(h.glob(strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(at))) == 0 {
				break
			}
			if prefix := filepath.Dir(filepath.Dir(at)); !slices.Contains(out, prefix) {
				out = append(out, prefix)
			}
			to, err := h.link(at)
			if err != nil {
				break
			}
			if !filepath.IsAbs(to) {
				to = filepath.Join(filepath.Dir(at), to)
			}
			at = to
		}
	}
	return out
}

// globbed is glob for libraries; a bad pattern finds nothing.
func globbed(pattern string) []string {
	found, _ := filepath.Glob(pattern)
	return found
}

package search

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Host is what is looked at of a machine: variables, files that match a pattern, and where a link
// leads.
type Host struct {
	Env  func(string) string
	Glob func(string) []string
	Link func(string) (string, error)
}

// This is the machine that the program runs on.
func This() Host { return Host{os.Getenv, globbed, os.Readlink} }

// Paths is where a library may be: by its name alone (the loader's directories), in folders of the
// caller's, in CUDA_HOME and CUDA_PATH, where toolkits are installed, and where Python's packages
// have it.
func (h Host) Paths(name string, folders ...string) []string {
	out := []string{name}
	for _, folder := range append(folders, h.places()...) {
		found := h.Glob(filepath.Join(folder, name))
		slices.Sort(found)
		slices.Reverse(found) // newer versions of Python first
		out = append(out, found...)
	}
	return out
}

// places are patterns of folders.
func (h Host) places() []string {
	var out []string
	for _, home := range []string{h.Env("CUDA_HOME"), h.Env("CUDA_PATH")} {
		if home != "" {
			out = append(out, filepath.Join(home, "lib64"), filepath.Join(home, "targets", "*-linux", "lib"))
		}
	}
	out = append(out, "/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64")
	pythons := append([]string{h.Env("VIRTUAL_ENV"), h.Env("CONDA_PREFIX")}, h.pythons()...)
	for _, python := range append(pythons, "/usr/local", "/usr", "/opt/conda", filepath.Join(h.Env("HOME"), ".local")) {
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
func (h Host) pythons() (out []string) {
	const links = 8
	for _, dir := range filepath.SplitList(h.Env("PATH")) {
		at := filepath.Join(dir, "python3")
		for range links {
			if len(h.Glob(strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(at))) == 0 {
				break
			}
			if prefix := filepath.Dir(filepath.Dir(at)); !slices.Contains(out, prefix) {
				out = append(out, prefix)
			}
			to, err := h.Link(at)
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

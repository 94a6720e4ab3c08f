package native

import (
	"path/filepath"
	"slices"
)

// cublasLt is the library's names, newest first.
var cublasLt = [...]string{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"}

// libraries is where cuBLASLt may be: what WEFT_CUBLASLT names and nothing else, or by name alone (the loader's directories), in CUDA_HOME and
// CUDA_PATH, where toolkits are installed, and where Python's packages have it.
func libraries(env func(string) string, glob func(string) []string) []string {
	if path := env("WEFT_CUBLASLT"); path != "" {
		return []string{path}
	}
	out := slices.Clone(cublasLt[:])
	for _, pattern := range places(env) {
		for _, name := range cublasLt {
			found := glob(filepath.Join(pattern, name))
			slices.Sort(found)
			slices.Reverse(found) // newer versions of Python first
			out = append(out, found...)
		}
	}
	return out
}

func places(env func(string) string) []string {
	var out []string
	for _, home := range []string{env("CUDA_HOME"), env("CUDA_PATH")} {
		if home != "" {
			out = append(out, filepath.Join(home, "lib64"), filepath.Join(home, "targets", "*-linux", "lib"))
		}
	}
	out = append(out, "/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64")
	for _, python := range []string{env("VIRTUAL_ENV"), env("CONDA_PREFIX"), "/usr/local", "/usr", "/opt/conda", filepath.Join(env("HOME"), ".local")} {
		if python != "" {
			for _, packages := range []string{"site-packages", "dist-packages"} {
				out = append(out, filepath.Join(python, "lib", "python3*", packages, "nvidia", "*", "lib"))
			}
		}
	}
	return out
}

// globbed is glob for libraries; a bad pattern finds nothing.
func globbed(pattern string) []string {
	found, _ := filepath.Glob(pattern)
	return found
}

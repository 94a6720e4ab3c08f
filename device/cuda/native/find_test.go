package native

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device/cuda/internal/search"
)

// machine is a host of some variables, files and links.
func machine(vars map[string]string, links map[string]string, files ...string) search.Host {
	return search.Host{
		Env: func(name string) string { return vars[name] },
		Glob: func(pattern string) (out []string) {
			for _, f := range files {
				if ok, err := filepath.Match(pattern, f); ok && err == nil {
					out = append(out, f)
				}
			}
			return out
		},
		Link: func(path string) (string, error) {
			if to, ok := links[path]; ok {
				return to, nil
			}
			return "", errors.New("no link")
		},
	}
}

func TestCuBLASLtIsLookedForTheNewestFirstAndFromTheNearestToTheFarthest(t *testing.T) {
	require.Equal(t, []string{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"}, libraries(machine(nil, nil), 0))
	require.Equal(t, []string{"/x.so"}, libraries(machine(map[string]string{"WEFT_CUBLASLT": "/x.so", "CUDA_HOME": "/cuda"}, nil), 13000))

	files := []string{
		"/venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13", "/cuda/lib64/libcublasLt.so.12",
		"/venv/lib/python3.9/site-packages/nvidia/cublas/lib/libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so.11",
	}
	h := machine(map[string]string{"CUDA_HOME": "/cuda", "VIRTUAL_ENV": "/venv"}, nil, files...)
	require.Equal(t, []string{"libcublasLt.so.13", files[0], "libcublasLt.so.12", files[1], files[2], "libcublasLt.so.11", files[3]}, libraries(h, 13000))
}

func TestALibraryThatIsNewerThanTheDriverIsNotTaken(t *testing.T) {
	for driver, want := range map[int][]string{
		13010: {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"},
		12080: {"libcublasLt.so.12", "libcublasLt.so.11"},
		11080: {"libcublasLt.so.11"},
	} {
		require.Equal(t, want, libraries(machine(nil, nil), driver))
	}
}

func TestCuBLASLtIsFoundBesideThePythonThatIsInPATHThoughItsEnvironmentIsNotActive(t *testing.T) {
	lib := "/opt/torch/.venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13"
	for name, h := range map[string]search.Host{
		"in PATH": machine(map[string]string{"PATH": "/usr/bin:/opt/torch/.venv/bin"}, nil, "/opt/torch/.venv/bin/python3", lib),
		"by links": machine(map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin"},
			map[string]string{"/usr/local/bin/python3": "../../../opt/torch/bin/python3", "/opt/torch/bin/python3": "/opt/torch/.venv/bin/python3", "/opt/torch/.venv/bin/python3": "/usr/bin/python3.12"},
			"/usr/local/bin/python3", "/opt/torch/bin/python3", "/opt/torch/.venv/bin/python3", "/usr/bin/python3.12", lib),
		"in a circle": machine(map[string]string{"PATH": "/a/bin:/opt/torch/.venv/bin"}, map[string]string{"/a/bin/python3": "python3"}, "/a/bin/python3", "/opt/torch/.venv/bin/python3", lib),
		"odd names":   machine(map[string]string{"PATH": "/[a*/bin:/opt/torch/.venv/bin"}, nil, "/opt/torch/.venv/bin/python3", lib),
	} {
		require.Contains(t, libraries(h, 13000), lib, name)
	}
	require.NotContains(t, libraries(machine(map[string]string{"PATH": "/opt/torch/.venv/bin"}, nil, lib), 13000), lib, "there is no Python there")
}

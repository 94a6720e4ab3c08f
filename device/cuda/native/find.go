package native

import "github.com/weft-project/weft/device/cuda/internal/search"

// cublasLt is the library's names, newest first.
var cublasLt = [...]struct {
	name string
	cuda int // of drivers that serve it, or later
}{{"libcublasLt.so.13", 13}, {"libcublasLt.so.12", 12}, {"libcublasLt.so.11", 11}}

// libraries is where cuBLASLt may be: what WEFT_CUBLASLT names and nothing else, or all places, the
// newest first that a driver of so many thousandths serves (0: of all).
func libraries(h search.Host, driver int) (out []string) {
	if path := h.Env("WEFT_CUBLASLT"); path != "" {
		return []string{path}
	}
	for _, lib := range cublasLt {
		if driver == 0 || driver/1000 >= lib.cuda {
			out = append(out, h.Paths(lib.name)...)
		}
	}
	return out
}

//go:build !((darwin || freebsd || linux) && (amd64 || arm64))

package kernels

import (
	"fmt"
	"runtime"
)

// openBLAS says that libraries are not opened here.
func openBLAS() blasChoice {
	return blasChoice{err: fmt.Errorf("libraries are not opened at run time on %s/%s", runtime.GOOS, runtime.GOARCH)}
}

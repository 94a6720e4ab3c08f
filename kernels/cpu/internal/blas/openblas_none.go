//go:build !((darwin || freebsd || linux) && (amd64 || arm64))

package blas

import (
	"fmt"
	"runtime"
)

// openBLAS says that libraries are not opened here.
func openBLAS() choice {
	return choice{err: fmt.Errorf("libraries are not opened at run time on %s/%s", runtime.GOOS, runtime.GOARCH)}
}

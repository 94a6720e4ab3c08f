//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package store

import (
	"errors"
	"fmt"
	"os"
)

func tryLock(*os.File, bool) (bool, error) {
	return false, fmt.Errorf("file store: no flock on this system: %w", errors.ErrUnsupported)
}

func unlock(*os.File) error { return nil }

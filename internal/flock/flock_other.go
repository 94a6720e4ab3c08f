//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package flock

import (
	"errors"
	"fmt"
	"os"
)

// Try fails: there is no flock here.
func Try(*os.File, bool) (bool, error) {
	return false, fmt.Errorf("no flock on this system: %w", errors.ErrUnsupported)
}

// Unlock has nothing to give back.
func Unlock(*os.File) error { return nil }

//go:build !unix

package private

import "os"

// CheckSecret takes every file: modes mean nothing here.
func CheckSecret(*os.File) error { return nil }

const atOnce = 0

//go:build !gpu || !cgo || !linux || !(amd64 || arm64)

package native

import (
	"github.com/weft-project/weft/device/cuda"
)

// Built says whether the program can reach a driver.
const Built = false

func stub() error {
	return &cuda.Error{Op: "open", Text: "built without the tag gpu (or without cgo, or not for Linux on amd64 or arm64): make gpu", Err: cuda.ErrNoDriver}
}

// Count is how many GPUs there are.
func Count() (int, error) { return 0, stub() }

// List describes them.
func List() ([]cuda.Info, error) { return nil, stub() }

// Default is the one that is meant where none is named.
func Default() (int, error) { return 0, stub() }

// Open opens one.
func Open(int) (cuda.Driver, error) { return nil, stub() }

// Library says where cuBLASLt was found, and its version.
func Library() (path string, version int, err error) { return "", 0, stub() }

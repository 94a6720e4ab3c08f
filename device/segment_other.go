//go:build !linux

package device

import (
	"errors"
	"fmt"
	"os"
)

// Elsewhere no memory is shared: every block comes from Go's heap.

type memfile struct{}

const memfileSeals = 0

func newMemfile(int, int) (memfile, []byte, error) {
	return memfile{}, nil, fmt.Errorf("this system shares no memory: %w", errors.ErrUnsupported)
}

func (memfile) open() (*os.File, error) { return nil, errors.ErrUnsupported }

func (memfile) unmap([]byte) {}

func maxShared() int64 { return 0 }

func machineMemory() int64 { return 0 }

func maxSegments() int { return 0 }

func mapTogether([]origin, int) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmapTogether([]byte) {}

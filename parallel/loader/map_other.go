//go:build !unix

package loader

import (
	"io"
	"os"
)

// mapped reads the file, where files are not mapped.
func mapped(f *os.File, size int) (raw []byte, unmap func() error, err error) {
	raw = make([]byte, size)
	_, err = io.ReadFull(f, raw)
	return raw, func() error { return nil }, err
}

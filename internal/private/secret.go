package private

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// ErrOpen is the error for a secret that others can read.
var ErrOpen = errors.New("others can read this secret")

// ReadSecret reads a file of at most so many bytes that its user, or root, alone can read. Its errors begin with the file's name, or what was
// done with it.
func ReadSecret(path string, most int) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := CheckSecret(file); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(file, int64(most)+1))
	if err == nil && len(b) > most {
		err = fmt.Errorf("%s: expected at most %d bytes", path, most)
	}
	return b, err
}

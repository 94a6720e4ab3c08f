package private

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrOpen is the error for a secret that others can read.
var ErrOpen = errors.New("others can read this secret")

// ErrNoFile is the error for what is no regular file. Who opens a named pipe may wait forever for
// somebody to write there.
var ErrNoFile = errors.New("expected a regular file")

// ReadSecret reads a secret of at most so many bytes, once: from a file that its user, or root,
// alone can read, or from a pipe that this process inherited, as a shell's <(…) is. Its errors
// begin with the path, or what was done with it.
func ReadSecret(path string, most int) ([]byte, error) {
	return read(path, most, inherited(path), CheckSecret)
}

// ReadKey is ReadSecret for a secret that is read again and again, which no pipe can be.
func ReadKey(path string, most int) ([]byte, error) { return read(path, most, false, CheckSecret) }

// ReadFile reads a regular file of at most so many bytes that everybody may read.
func ReadFile(path string, most int) ([]byte, error) {
	return read(path, most, false, func(*os.File) error { return nil })
}

// inherited says whether a path names a descriptor that this process was given.
func inherited(path string) bool {
	dir := filepath.Dir(path)
	return dir == "/dev/fd" || dir == "/proc/self/fd" || path == "/dev/stdin"
}

// read reads a file that check lets pass. pipe says that a pipe will do, too.
func read(path string, most int, pipe bool, check func(*os.File) error) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|atOnce, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	switch kind := info.Mode().Type(); {
	case kind == fs.ModeDir:
		return nil, fmt.Errorf("%s: it is a folder: expected a file", path)
	case kind != 0 && (kind != fs.ModeNamedPipe || !pipe):
		return nil, fmt.Errorf("%s: %w, and this is none; a secret that is read once may come by "+
			"/dev/fd/N, too, as from a shell's <(…)", path, ErrNoFile)
	}
	if err := check(file); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(file, int64(most)+1))
	if err == nil && len(b) > most {
		err = fmt.Errorf("%s: expected at most %d bytes", path, most)
	}
	return b, err
}

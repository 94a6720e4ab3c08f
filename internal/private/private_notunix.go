//go:build !unix

package private

import "os"

// Folder opens a folder, and makes what is missing of its path.
func Folder(path string) (*os.Root, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	return os.OpenRoot(path)
}

// New makes a folder in another one, under a new name that begins with prefix.
func New(in, prefix string) (*os.Root, error) {
	if err := os.MkdirAll(in, 0o700); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(in, prefix)
	if err != nil {
		return nil, err
	}
	return os.OpenRoot(dir)
}

// OpenFile is os.OpenFile for a private file.
func OpenFile(path string, flag int) (*os.File, error) { return os.OpenFile(path, flag, 0o600) }

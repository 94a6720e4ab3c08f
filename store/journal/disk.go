package journal

import (
	"errors"
	"io"
	"os"

	"github.com/weft-project/weft/internal/flock"
	"github.com/weft-project/weft/internal/private"
)

// disk is what a journal asks of a file system; tests have one that fails and forgets.
type disk interface {
	open(path string) (file, error)   // for reading and writing, made if it is not there
	create(path string) (file, error) // the same, and empty
	rename(from, to string) error
	remove(path string) error
	syncDir(path string) error // brings the names in a directory to the disk
	same(path string, f file) (bool, error)
}

// file is one open file.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
	size() (int64, error)
	lock() (bool, error) // says whether it was free; closing gives it back
}

type system struct{}

func (system) open(path string) (file, error) { return openPrivate(path, 0) }

func (system) create(path string) (file, error) { return openPrivate(path, os.O_TRUNC) }

func openPrivate(path string, flags int) (file, error) {
	f, err := private.OpenFile(path, os.O_RDWR|os.O_CREATE|flags)
	if err != nil {
		return nil, err
	}
	if err := private.CheckSecret(f); err != nil { // what a store holds is its clients' alone
		return nil, errors.Join(err, f.Close())
	}
	return osFile{f}, nil
}

func (system) rename(from, to string) error { return os.Rename(from, to) }

func (system) remove(path string) error { return os.Remove(path) }

func (system) syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (system) same(path string, f file) (bool, error) {
	named, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	opened, err := f.(osFile).Stat()
	return err == nil && os.SameFile(named, opened), err
}

type osFile struct{ *os.File }

func (f osFile) size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f osFile) lock() (bool, error) { return flock.Try(f.File, true) }

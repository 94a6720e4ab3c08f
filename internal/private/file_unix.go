//go:build unix

package private

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// OpenFile is os.OpenFile for a regular file, which may stand in a folder that others write to,
// too. A link to it is followed if this user or root made it.
func OpenFile(path string, flag int) (*os.File, error) {
	p, err := find(path, false)
	if err != nil {
		return nil, err
	}
	defer p.close()
	var fd int
	err = retry(func() (err error) { // a fifo would keep who opens it
		fd, err = unix.Openat(p.dir, p.name, flag&^os.O_TRUNC|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
		return err
	})
	if err != nil {
		return nil, p.fail("open", err)
	}
	f, err := p.file(fd)
	if err == nil && flag&os.O_TRUNC != 0 {
		if err = f.Truncate(0); err != nil {
			_ = f.Close()
		}
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// file is what was opened, if it is a regular file that nobody else may change.
func (p *place) file(fd int) (*os.File, error) {
	path := p.path()
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	switch {
	case err != nil:
		err = p.fail("stat", err)
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = fmt.Errorf("%s is no regular file", path)
	default:
		if err = judge(path, &st); err == nil {
			err = unix.SetNonblock(fd, false)
		}
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), path), nil
}

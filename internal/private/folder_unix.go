//go:build unix

package private

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Folder opens a folder, and makes what is missing of its path.
func Folder(path string) (*os.Root, error) {
	p, err := enter(path)
	if err != nil {
		return nil, err
	}
	defer p.close()
	return p.root()
}

// New makes a folder in another one, under a new name that begins with prefix. That other one may
// also be one that everybody makes files in and removes none of others' from, as /tmp.
func New(in, prefix string) (*os.Root, error) {
	p, err := enter(in)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := p.check(true); err != nil {
		return nil, err
	}
	for {
		p.name = prefix + strconv.FormatUint(rand.Uint64(), 10)
		err := retry(func() error { return unix.Mkdirat(p.dir, p.name, 0o700) })
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return nil, p.fail("mkdir", err)
		}
		if err := p.descend(false); err != nil {
			return nil, err
		}
		return p.root()
	}
}

// enter opens a folder, and makes what is missing of its path.
func enter(path string) (*place, error) {
	p, err := find(path, true)
	if err != nil {
		return nil, err
	}
	if err := p.descend(true); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// root is the place's folder, if nobody else may change it.
func (p *place) root() (*os.Root, error) {
	if err := p.check(false); err != nil {
		return nil, err
	}
	var want unix.Stat_t
	if err := unix.Fstat(p.dir, &want); err != nil {
		return nil, p.fail("stat", err)
	}
	root, err := os.OpenRoot(p.path())
	if err != nil {
		return nil, err
	}
	dot, err := root.Open(".")
	if err == nil {
		var have unix.Stat_t
		if err = unix.Fstat(int(dot.Fd()), &have); err == nil && (have.Dev != want.Dev || have.Ino != want.Ino) {
			err = fmt.Errorf("%s: somebody exchanged it just now: %w", p.path(), ErrOthers)
		}
		_ = dot.Close()
	}
	if err != nil {
		_ = root.Close()
		return nil, err
	}
	return root, nil
}

// check refuses a folder that others may write to. Unless shared is set, that includes one in which
// each removes only his own.
func (p *place) check(shared bool) error {
	var st unix.Stat_t
	if err := unix.Fstat(p.dir, &st); err != nil {
		return p.fail("stat", err)
	}
	if shared && st.Mode&unix.S_ISVTX != 0 && trusts(st.Uid) {
		return nil
	}
	return judge(p.path(), &st)
}

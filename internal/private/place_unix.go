//go:build unix

package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mostLinks is how many links a path may lead through, as for Linux.
const mostLinks = 40

// place is a name in an open folder.
type place struct {
	dir  int    // the folder's descriptor
	in   string // its path, in which there is no link
	name string
}

func (p *place) path() string { return filepath.Join(p.in, p.name) }

func (p *place) close() {
	if p.dir >= 0 {
		_ = unix.Close(p.dir)
	}
}

func (p *place) fail(op string, err error) error {
	return &fs.PathError{Op: op, Path: p.path(), Err: err}
}

// find walks a path up to its last name, which is no link then, and may not be there. create says
// to make missing folders.
func find(path string, create bool) (*place, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	for range mostLinks {
		p, round, err := walk(path, create)
		if err != nil || round == "" {
			return p, err
		}
		path = round
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: unix.ELOOP}
}

// walk is find up to the first link; it returns the path that goes round that.
func walk(path string, create bool) (*place, string, error) {
	p := &place{dir: -1, name: "/"}
	names := strings.Split(strings.Trim(path, "/"), "/")
	for i := -1; i < len(names)-1; i++ {
		if err := p.descend(create); err != nil {
			p.close()
			return nil, "", err
		}
		if p.name = names[i+1]; p.name == "" { // the path is "/"
			p.name = "."
		}
		target, err := p.link()
		if err != nil || target != "" {
			p.close()
			return nil, filepath.Join(append([]string{target}, names[i+2:]...)...), err
		}
	}
	return p, "", nil
}

// link is the path to which a link leads, "" if the place is none. It refuses a link that another
// user made.
func (p *place) link() (string, error) {
	var st unix.Stat_t
	err := retry(func() error { return unix.Fstatat(p.dir, p.name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	switch {
	case errors.Is(err, unix.ENOENT):
		return "", nil
	case err != nil:
		return "", p.fail("stat", err)
	case st.Mode&unix.S_IFMT != unix.S_IFLNK:
		return "", nil
	case !trusts(st.Uid):
		return "", fmt.Errorf("%s is a link of user %d's: %w; name another path", p.path(), st.Uid, ErrOthers)
	}
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(p.dir, p.name, b)
	if err != nil {
		return "", p.fail("readlink", err)
	}
	target := string(b[:n])
	if !filepath.IsAbs(target) {
		target = filepath.Join(p.in, target)
	}
	return target, nil
}

// descend goes into the folder that the place names; if it is missing and is to be made, it makes
// it.
func (p *place) descend(create bool) error {
	var fd int
	open := func() (err error) {
		fd, err = unix.Openat(p.dir, p.name, search|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	}
	err := retry(open)
	if errors.Is(err, unix.ENOENT) && create {
		if err := retry(func() error { return unix.Mkdirat(p.dir, p.name, 0o700) }); err != nil && !errors.Is(err, unix.EEXIST) {
			return p.fail("mkdir", err)
		}
		err = retry(open)
	}
	if err != nil {
		return p.fail("open", err)
	}
	p.close()
	p.in, p.dir, p.name = p.path(), fd, ""
	return nil
}

// judge refuses what another user may write to.
func judge(path string, st *unix.Stat_t) error {
	kind, instead := "file", ""
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		kind, instead = "folder", ", or name a folder in it that is not there yet"
	}
	mode := fs.FileMode(st.Mode & 0o777)
	switch {
	case !trusts(st.Uid):
		return fmt.Errorf("%s belongs to user %d: %w; name a %s of your own", path, st.Uid, ErrOthers, kind)
	case mode&0o002 != 0, mode&0o020 != 0 && st.Gid != st.Uid:
		return fmt.Errorf("%s has mode %#o, and belongs to group %d: %w; chmod go-w it%s", path, mode, st.Gid, ErrOthers, instead)
	}
	return nil
}

// trusts says that a user is this process's, or can do everything: root, or who owns the root of
// the file system. In a user namespace without root that is how root's files look.
func trusts(uid uint32) bool {
	if uid == 0 || int64(uid) == int64(os.Geteuid()) {
		return true
	}
	var st unix.Stat_t
	return unix.Stat("/", &st) == nil && st.Uid == uid
}

// retry repeats a call that a signal interrupts.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

//go:build unix

package private

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weft-project/weft/internal/soak"
)

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	require.NoError(t, err)
	return info.Mode()
}

func TestFoldersAndFilesAreMadeForTheirUserAlone(t *testing.T) {
	dir := t.TempDir()
	root, err := Folder(filepath.Join(dir, "a", "b"))
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "a", "b"), root.Name())
	require.NoError(t, root.Close())
	require.Equal(t, fs.ModeDir|0o700, mode(t, filepath.Join(dir, "a")))
	require.Equal(t, fs.ModeDir|0o700, mode(t, filepath.Join(dir, "a", "b")))

	seen := map[string]bool{}
	for range 5 {
		root, err := New(filepath.Join(dir, "c"), "job_")
		require.NoError(t, err)
		require.Regexp(t, `/c/job_\d+$`, root.Name())
		require.Equal(t, fs.ModeDir|0o700, mode(t, root.Name()))
		require.False(t, seen[root.Name()])
		seen[root.Name()] = true
		require.NoError(t, root.Close())
	}

	file := filepath.Join(dir, "file")
	f, err := OpenFile(file, os.O_CREATE|os.O_RDWR)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), mode(t, file))
	_, err = f.WriteString("text")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	f, err = OpenFile(file, os.O_RDWR|os.O_TRUNC)
	require.NoError(t, err)
	info, err := f.Stat()
	require.NoError(t, err)
	require.Zero(t, info.Size())
	require.NoError(t, f.Close())
}

func TestWhatOthersMayWriteToIsRefusedAndLeftAsItIs(t *testing.T) {
	uid := os.Geteuid()
	for _, c := range []struct {
		mode   fs.FileMode
		gid    int
		folder bool // may it be used?
		parent bool // may a new one be made in it?
	}{
		{0o700, uid + 1, true, true}, {0o755, uid + 1, true, true},
		{0o775, uid, true, true}, // the group is the user's own
		{0o775, uid + 1, false, false}, {0o702, uid, false, false}, {0o777, uid, false, false},
		{0o777 | fs.ModeSticky, uid, false, true}, {0o770 | fs.ModeSticky, uid + 1, false, true},
	} {
		dir := t.TempDir()
		if err := os.Chown(dir, -1, c.gid); err != nil && c.gid != uid {
			continue // only root may; the others tell it, too
		}
		require.NoError(t, os.Chmod(dir, c.mode))
		file := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(file, []byte("text"), 0o600))
		require.NoError(t, os.Chown(file, -1, c.gid))
		require.NoError(t, os.Chmod(file, c.mode.Perm()))
		for name, try := range map[string]struct {
			ok   bool
			call func() (interface{ Close() error }, error)
		}{
			"Folder":   {c.folder, func() (interface{ Close() error }, error) { return Folder(dir) }},
			"New":      {c.parent, func() (interface{ Close() error }, error) { return New(dir, "x") }},
			"OpenFile": {c.folder, func() (interface{ Close() error }, error) { return OpenFile(file, os.O_RDWR|os.O_TRUNC) }},
		} {
			it, err := try.call()
			if try.ok {
				require.NoError(t, err, "%s %+v", name, c)
				require.NoError(t, it.Close())
				continue
			}
			require.ErrorIs(t, err, ErrOthers, "%s %+v", name, c)
			require.ErrorContains(t, err, "chmod go-w it")
		}
		if !c.folder {
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, "text", string(b), "%+v", c)
		}
	}
}

func TestWhatIsNoFileOrNoFolderIsRefused(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	for _, flag := range []int{os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREATE} {
		_, err := OpenFile(fifo, flag)
		require.ErrorContains(t, err, fifo+" is no regular file")
	}
	_, err := OpenFile(dir, os.O_RDONLY)
	require.ErrorContains(t, err, dir+" is no regular file")
	_, err = OpenFile(filepath.Join(dir, "none"), os.O_RDONLY)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = OpenFile(filepath.Join(dir, "none", "file"), os.O_RDWR|os.O_CREATE)
	require.ErrorIs(t, err, fs.ErrNotExist)
	for _, path := range []string{fifo, filepath.Join(fifo, "below")} {
		_, err = Folder(path)
		require.ErrorIs(t, err, unix.ENOTDIR)
		require.ErrorContains(t, err, "open "+fifo)
		_, err = New(path, "x")
		require.ErrorIs(t, err, unix.ENOTDIR)
	}
	require.NoError(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	_, err = Folder(filepath.Join(dir, "loop", "x"))
	require.ErrorIs(t, err, unix.ELOOP)
	root, err := Folder("/")
	if err == nil { // nobody but its user may write to it, as it should be
		require.NoError(t, root.Close())
	}
}

// The oracle follows every link; here all belong to this user.
func TestAPathLeadsWhereTheSystemTakesIt(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for seed := range uint64(soak.Cases(100)) {
		r := rand.New(rand.NewPCG(seed, 18))
		dir := filepath.Join(top, "tree")
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.Mkdir(dir, 0o700))
		folders := []string{dir}
		anywhere := func() string { return folders[r.IntN(len(folders))] }
		paths := []string{dir}
		for i := range 12 {
			in := anywhere()
			path := filepath.Join(in, string(rune('a'+i)))
			target := anywhere()
			switch r.IntN(4) {
			case 0:
				require.NoError(t, os.Mkdir(path, 0o700))
				folders = append(folders, path)
			case 1:
				require.NoError(t, os.Symlink(target, path))
			case 2:
				target, err = filepath.Rel(in, target)
				require.NoError(t, err)
				require.NoError(t, os.Symlink(target, path))
			default:
				require.NoError(t, os.Symlink(paths[r.IntN(len(paths))], path))
			}
			paths = append(paths, path)
		}
		for range 10 {
			path := paths[r.IntN(len(paths))]
			for range r.IntN(4) {
				path = filepath.Join(path, string(rune('a'+r.IntN(12))))
			}
			want, wrong := filepath.EvalSymlinks(path)
			p, err := find(path, false)
			if err == nil {
				if err = p.descend(false); err == nil && wrong == nil {
					require.Equal(t, want, p.path(), "seed %d: %s", seed, path)
				}
				p.close()
			}
			require.Equal(t, wrong == nil, err == nil, "seed %d: %s: %v and %v", seed, path, err, wrong)
		}
	}
}

func TestANameIsOneInItsFolder(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "step-000000000001.0": true, "..a": true, "a..": true, "": false, ".": false, "..": false, "/": false,
		"a/b": false, "../a": false, "a/": false, `a\b`: false, `c:a`: false, "a\x00": false,
	} {
		require.Equal(t, want, IsName(name), "%q", name)
	}
}

package private

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
)

func TestMain(m *testing.M) {
	proctest.Main(m, map[string]proctest.Command{
		"folder": proctest.Do(func(_ context.Context, path string) (struct{}, error) { return struct{}{}, os.Mkdir(path, 0o700) }),
		"link":   proctest.Do(func(_ context.Context, at [2]string) (struct{}, error) { return struct{}{}, os.Symlink(at[0], at[1]) }),
		"write": proctest.Do(func(_ context.Context, path string) (struct{}, error) {
			return struct{}{}, os.WriteFile(path, []byte("planted"), 0o600)
		}),
		"Folder": proctest.Do(func(_ context.Context, path string) (struct{}, error) { return closed(Folder(path)) }),
		"New":    proctest.Do(func(_ context.Context, path string) (struct{}, error) { return closed(New(path, "x")) }),
	})
}

func closed(it io.Closer, err error) (struct{}, error) {
	if err == nil {
		err = it.Close()
	}
	return struct{}{}, err
}

// shared is a folder in which everybody makes files; sticky says that each removes only his own
// there.
func shared(t *testing.T, sticky bool) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weft-shared-*")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	mode := os.FileMode(0o777)
	if sticky {
		mode |= os.ModeSticky
	}
	require.NoError(t, os.Chmod(dir, mode))
	return dir
}

func TestNothingThatAnotherUserPlantedIsUsed(t *testing.T) {
	stranger := proctest.StartStranger(t, nil)
	own := t.TempDir()
	victim := filepath.Join(own, "file")
	require.NoError(t, os.WriteFile(victim, []byte("ours"), 0o600))
	for _, sticky := range []bool{false, true} {
		dir := shared(t, sticky)
		at := func(name string) string { return filepath.Join(dir, name) }
		require.NoError(t, stranger.Ask(t.Context(), "folder", at("folder"), nil))
		require.NoError(t, stranger.Ask(t.Context(), "write", at("file"), nil))
		require.NoError(t, stranger.Ask(t.Context(), "link", [2]string{own, at("link")}, nil))
		require.NoError(t, stranger.Ask(t.Context(), "link", [2]string{"nowhere", at("dangling")}, nil))
		require.NoError(t, os.Mkdir(at("ours"), 0o700))
		require.NoError(t, stranger.Ask(t.Context(), "link", [2]string{"ours", at("inside")}, nil))
		for path, says := range map[string]string{
			"folder": " belongs to user 65534: ", "folder/below": "", "link": " is a link of user 65534's: ", "link/below": " is a link of user 65534's: ",
			"inside": " is a link of user 65534's: ", "dangling": " is a link of user 65534's: ",
		} {
			root, err := Folder(at(path))
			if says == "" { // he may put it out of the way, but what stands at its end is ours
				require.NoError(t, err)
				require.NoError(t, root.Close())
				continue
			}
			require.ErrorIs(t, err, ErrOthers, path)
			require.ErrorContains(t, err, dir)
			require.ErrorContains(t, err, says)
			_, err = New(at(path), "x")
			require.ErrorIs(t, err, ErrOthers, path)
		}
		for _, path := range []string{"file", "link/file", "link/new", "dangling"} {
			for _, flag := range []int{os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREATE | os.O_TRUNC} {
				_, err := OpenFile(at(path), flag)
				if flag&os.O_CREATE == 0 || path != "file" || !sticky { // there fs.protected_regular may forbid it first
					require.ErrorIs(t, err, ErrOthers, "%s %v", path, sticky)
				}
				require.Error(t, err)
			}
		}
		b, err := os.ReadFile(victim)
		require.NoError(t, err)
		require.Equal(t, "ours", string(b))
		left, err := os.ReadDir(own)
		require.NoError(t, err)
		require.Len(t, left, 1)

		require.NoError(t, os.Symlink(own, at("our link")))
		f, err := OpenFile(at("our link/file"), os.O_RDONLY)
		require.NoError(t, err, "who can write there made the link")
		require.NoError(t, f.Close())
		f, err = OpenFile(at("new"), os.O_RDWR|os.O_CREATE)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
}

func TestAFolderIsReachedThroughThoseThatItsUserMayNotList(t *testing.T) {
	stranger := proctest.StartStranger(t, nil)
	dir := shared(t, true)
	require.NoError(t, os.Chmod(dir, 0o711))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "home"), 0o700))
	require.NoError(t, os.Chown(filepath.Join(dir, "home"), proctest.Nobody, proctest.Nobody))
	require.NoError(t, stranger.Ask(t.Context(), "Folder", filepath.Join(dir, "home", "a"), nil))
	require.NoError(t, stranger.Ask(t.Context(), "New", filepath.Join(dir, "home"), nil))
	require.ErrorContains(t, stranger.Ask(t.Context(), "Folder", filepath.Join(dir, "new"), nil), syscall.EACCES.Error())
}

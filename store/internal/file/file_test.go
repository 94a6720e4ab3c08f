package file

import (
	"bytes"
	"context"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/flock"
	"github.com/weft-project/weft/internal/private"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/talktest"
)

func openFile(t *testing.T, path string, cfg Config) *File {
	t.Helper()
	f, err := New(path, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func TestTheFileHasPyTorchsFormat(t *testing.T) {
	path, c := filepath.Join(t.TempDir(), "s"), t.Context()
	f := openFile(t, path, Config{})
	require.NoError(t, f.Set(c, "k", []byte("v")))
	_, err := f.Add(c, "n", -2)
	require.NoError(t, err)
	_, err = f.Delete(c, "k")
	require.NoError(t, err)
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	want := "02 00*3 '/k' 01 00*3 'v'  02 00*3 '/n' 02 00*3 '-2'  03 00*3 '-/k' 00*4"
	require.Equal(t, hex.EncodeToString(talktest.Unhex(t, want)), hex.EncodeToString(got))

	// And read by one that was not there: also the keys of PyTorch's own bookkeeping.
	more := talktest.Unhex(t, "09 00*3 'refcount/' 01 00*3 '1'")
	require.NoError(t, os.WriteFile(path, append(got, more...), 0o600))
	g := openFile(t, path, Config{})
	ok, err := g.Check(c, "k")
	require.NoError(t, err)
	require.False(t, ok)
	n, err := g.NumKeys(c)
	require.NoError(t, err)
	require.Equal(t, int64(2), n)
	sum, err := g.Add(c, "n", 3)
	require.NoError(t, err)
	require.Equal(t, int64(1), sum)
}

func TestATornLastRecordIsIgnoredAndThenCutOff(t *testing.T) {
	whole := appendRecord(appendRecord(nil, "/a", []byte("first")), "/b", []byte("second"))
	kept := len(appendRecord(nil, "/a", []byte("first")))
	for cut := kept; cut < len(whole); cut++ {
		path, c := filepath.Join(t.TempDir(), "s"), t.Context()
		require.NoError(t, os.WriteFile(path, whole[:cut], 0o600))
		f := openFile(t, path, Config{})
		ok, err := f.Check(c, "b")
		require.NoError(t, err)
		require.False(t, ok, "cut at %d", cut)
		require.NoError(t, f.Set(c, "c", []byte("third")))
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(appendRecord(bytes.Clone(whole[:kept]), "/c", []byte("third"))), string(got))
	}
}

func TestAFileThatIsNoLogIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	text := []byte("this is somebody's letter and must not be touched")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	_, err := New(path, Config{})
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.ErrorContains(t, err, "byte 0")
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, text, got)

	_, err = New(filepath.Join(path, "below"), Config{})
	require.Error(t, err)
	_, err = New(path, Config{WorldSize: -1})
	require.ErrorContains(t, err, "WorldSize")
}

func TestAFileStoreIsItsUsersAloneAndOneThatOthersMayWriteToIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	f, err := New(path, Config{})
	require.NoError(t, err)
	require.NoError(t, f.Close())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	for _, c := range []struct {
		mode os.FileMode
		ok   bool
	}{{0o644, true}, {0o666, false}, {0o602, false}} { // PyTorch makes the first
		require.NoError(t, os.Chmod(path, c.mode))
		f, err := New(path, Config{})
		if c.ok {
			require.NoError(t, err)
			require.NoError(t, f.Close())
			continue
		}
		require.ErrorIs(t, err, private.ErrOthers)
		require.ErrorContains(t, err, path)
	}
}

func TestAnOperationOnALockedFileEndsAtItsDeadline(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	f := openFile(t, path, Config{})
	h, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	locked, err := flock.Try(h, true)
	require.NoError(t, err)
	require.True(t, locked)

	c, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	queued := make(chan error)
	go func() { queued <- f.Wait(c, "k") }()
	require.ErrorIs(t, f.Set(c, "k", nil), kv.ErrTimeout)
	require.ErrorIs(t, <-queued, kv.ErrTimeout)

	done := make(chan error)
	go func() { done <- f.Set(t.Context(), "k", nil) }()
	require.NoError(t, h.Close())
	require.NoError(t, <-done)
}

func TestReadersShareTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	f := openFile(t, path, Config{})
	require.NoError(t, f.Set(t.Context(), "k", []byte("v")))
	h, err := os.Open(path)
	require.NoError(t, err)
	defer h.Close()
	locked, err := flock.Try(h, false)
	require.NoError(t, err)
	require.True(t, locked)
	v, err := f.Get(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, "v", string(v))
	c, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, f.Set(c, "k", nil), kv.ErrTimeout)
}

func TestTheLastToCloseRemovesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	var all []*File
	for range 3 {
		all = append(all, openFile(t, path, Config{WorldSize: 3}))
	}
	require.NoError(t, all[0].Set(t.Context(), "k", nil))
	for i, f := range all {
		require.FileExists(t, path, i)
		require.NoError(t, f.Close())
		require.NoError(t, f.Close())
	}
	require.NoFileExists(t, path)
}

func TestAFileThatWasReplacedIsReadAnew(t *testing.T) {
	path, c := filepath.Join(t.TempDir(), "s"), t.Context()
	f := openFile(t, path, Config{})
	require.NoError(t, f.Set(c, "old", []byte("v")))
	require.NoError(t, os.Rename(path, path+".gone"))
	g := openFile(t, path, Config{})
	require.NoError(t, g.Set(c, "new", []byte("longer than what was there before")))
	ok, err := f.Check(c, "old")
	require.NoError(t, err)
	require.False(t, ok)
	v, err := f.Get(c, "new")
	require.NoError(t, err)
	require.Equal(t, "longer than what was there before", string(v))
	require.Equal(t, path, f.Path())
}

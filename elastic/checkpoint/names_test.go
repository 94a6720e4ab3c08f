package checkpoint

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/store"
)

// outside are names that would lead out of the folder in which they stand.
var outside = []string{"", ".", "..", "../x", "a/b", "a/..", "/etc/passwd", "/", "a\x00b", `a\b`, `C:x`}

func TestAShardWhoseNameLeadsElsewhereIsRefused(t *testing.T) {
	for _, name := range outside {
		text, err := manifest{Version: version, Shards: []shard{{File: name}}}.encode()
		require.NoError(t, err)
		_, err = decode(text)
		require.ErrorIs(t, err, ErrCorrupt, "%q", name)
	}
}

func TestAShardThatIsALinkToElsewhereIsNotRead(t *testing.T) {
	d := dir(t, Config{})
	require.NoError(t, d.Save(t.Context(), Part{Step: 1, Pieces: []Piece{tensor("a", 1)}}))
	shard := filepath.Join(d.path, "step-000000000001.0", "rank-00000-of-00001.safetensors")
	elsewhere := filepath.Join(t.TempDir(), "shard")
	require.NoError(t, os.Rename(shard, elsewhere))
	require.NoError(t, os.Symlink(elsewhere, shard))
	k, err := d.Latest()
	if err == nil {
		_, err = k.Read("a")
	}
	require.ErrorIs(t, err, ErrCorrupt)
}

// A member may write into the store, too, where rank 0 tells the others its folder and they tell it
// their files.
func TestNobodyWritesWhereTheStoreSaysOutsideTheFolderOfCheckpoints(t *testing.T) {
	for _, name := range append(outside, "manifest.json", "step-000000000002.0", "step-1.0") {
		d, st := dir(t, Config{}), store.NewMemory()
		require.NoError(t, st.Set(t.Context(), keyFolder(1), []byte(name)))
		for _, key := range []string{"1", "end"} {
			require.NoError(t, st.Set(t.Context(), keyOf(name, key), []byte("ok")))
		}
		err := d.Save(t.Context(), Part{Step: 1, Rank: 1, World: 2, Store: st, Pieces: []Piece{tensor("a", 1)}})
		require.ErrorIs(t, err, ErrInvalid, "%q", name)
		left, err := os.ReadDir(d.path)
		require.NoError(t, err)
		require.Empty(t, left, "%q", name)
	}
	for _, name := range outside {
		d, st := dir(t, Config{}), store.NewMemory()
		said, err := json.Marshal(shard{File: name})
		require.NoError(t, err)
		require.NoError(t, st.Set(t.Context(), keyOf("step-000000000001.0", "1"), said))
		err = d.Save(t.Context(), Part{Step: 1, World: 2, Store: st, Pieces: []Piece{tensor("a", 1)}})
		require.ErrorIs(t, err, ErrCorrupt, "%q", name)
	}
}

func TestCheckpointsAreTheirUsersAlone(t *testing.T) {
	d := dir(t, Config{})
	d.path = filepath.Join(d.path, "below")
	require.NoError(t, d.Save(t.Context(), Part{Step: 1, Pieces: []Piece{tensor("a", 1)}}))
	require.NoError(t, filepath.WalkDir(filepath.Dir(d.path), func(path string, e fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := e.Info()
		require.NoError(t, err)
		want := fs.FileMode(0o600)
		if e.IsDir() {
			want = 0o700
		}
		require.Equal(t, want, info.Mode().Perm(), path)
		return nil
	}))
}

func TestAFolderThatOthersMayWriteToIsRefusedWhenItIsOpenedAndWhenACheckpointIsSaved(t *testing.T) {
	d := dir(t, Config{})
	require.NoError(t, os.Chmod(d.path, 0o757))
	_, atOnce := Open(d.path, Config{})
	for _, err := range []error{atOnce, d.Save(t.Context(), Part{Step: 1, Pieces: []Piece{tensor("a", 1)}})} {
		require.ErrorContains(t, err, "chmod go-w")
		require.ErrorContains(t, err, d.path)
	}
}

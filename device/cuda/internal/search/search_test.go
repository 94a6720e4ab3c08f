package search

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestALibraryIsLookedForByItsNameThenInTheCallersFoldersThenWhereOthersPutIt(t *testing.T) {
	dir := t.TempDir()
	at := func(folder string) string {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, folder), 0o700))
		path := filepath.Join(dir, folder, "libweft.so.1")
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		return path
	}
	nearest, home := at("own"), at("cuda/lib64")
	t.Setenv("CUDA_HOME", filepath.Join(dir, "cuda"))
	require.Equal(t, []string{"libweft.so.1", nearest, home}, This().Paths("libweft.so.1", filepath.Join(dir, "own")))
	require.Nil(t, globbed("["), "a bad pattern finds nothing")
}

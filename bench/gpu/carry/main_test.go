package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// repository is a repository with a bundle of 1 MiB, which it ignores, and some small files. The
// test is in its folder.
func repository(t *testing.T) {
	t.Chdir(t.TempDir())
	said, err := exec.Command("git", "init", "-q").CombinedOutput()
	require.NoError(t, err, "%s", said)
	plant(t, ".gitignore", 0)
	require.NoError(t, os.WriteFile(".gitignore", []byte("bin/\n"), 0o600))
	plant(t, "bin/check.tar.xz", mib)
	plant(t, "bin/check/one.test", 3*mib)
	plant(t, "known.go", 1000)
	said, err = exec.Command("git", "add", ".").CombinedOutput()
	require.NoError(t, err, "%s", said)
}

func plant(t *testing.T, path string, size int) {
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, make([]byte, size), 0o600))
}

func carry(args ...string) (string, error) {
	var out bytes.Buffer
	err := run(append(args, "bin/check.tar.xz", "bin/check"), &out)
	return out.String(), err
}

func TestAPlantedFileThatIsTooMuchIsFound(t *testing.T) {
	repository(t)
	out, err := carry("-limit", "1.5")
	require.NoError(t, err)
	require.Contains(t, out, "to carry: 1.0 MiB of at most 1.5: bundle 1.0, tree 0.0")
	require.Contains(t, out, "bin/check: 3.0 MiB in 1 files")

	plant(t, "bin/more", mib)
	_, err = carry("-limit", "1.5")
	require.NoError(t, err, "git ignores it")

	plant(t, "planted.log", mib)
	out, err = carry("-limit", "1.5")
	require.ErrorContains(t, err, "bundle and tree have 2.0 MiB together; at most 1.5 can be carried")
	require.Contains(t, out, "    1.00 MiB  planted.log")
	_, err = carry("-limit", "2.1")
	require.NoError(t, err)
	require.NoError(t, os.Remove("planted.log"))

	plant(t, "known.go", mib)
	_, err = carry("-limit", "1.5")
	require.Error(t, err, "git knows it")
	require.NoError(t, os.Remove("known.go"))
	_, err = carry("-limit", "1.5")
	require.NoError(t, err, "it is gone, which git has not been told")

	plant(t, "bin/check.tar.xz", 2*mib)
	_, err = carry("-limit", "1.5")
	require.Error(t, err)
}

func TestWithoutABundleOrARepositoryItFails(t *testing.T) {
	repository(t)
	require.NoError(t, os.Remove("bin/check.tar.xz"))
	_, err := carry()
	require.ErrorContains(t, err, "bin/check.tar.xz")
	require.ErrorContains(t, run([]string{"one"}, nil), "BUNDLE FOLDER")
	require.ErrorContains(t, run([]string{"-limit", "0", "one", "two"}, nil), "more than 0")

	t.Setenv("GIT_DIR", "nothing")
	plant(t, "bin/check.tar.xz", 1)
	_, err = carry()
	require.ErrorContains(t, err, "git ls-files")
}

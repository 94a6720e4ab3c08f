//go:build unix

package private

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestASecretIsReadFromARegularFileOrFromAPipeThatWasInherited(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600)) // nobody will ever write there: who opens it as other files waits forever
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(fifo, link))
	for _, read := range []func(string, int) ([]byte, error){ReadSecret, ReadKey, ReadFile} {
		for _, path := range []string{fifo, link} {
			_, err := read(path, 10)
			require.ErrorIs(t, err, ErrNoFile)
			require.ErrorContains(t, err, path+": expected a regular file")
		}
		_, err := read("/dev/zero", 10)
		require.ErrorIs(t, err, ErrNoFile)
		_, err = read(t.TempDir(), 10)
		require.ErrorContains(t, err, "it is a folder: expected a file")
	}
	for _, at := range []string{"/dev/fd/%d", "/proc/self/fd/%d"} {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		_, err = w.WriteString("secret")
		require.NoError(t, err)
		path := fmt.Sprintf(at, r.Fd())
		_, err = ReadKey(path, 10)
		require.ErrorIs(t, err, ErrNoFile, "it is read again and again")
		require.NoError(t, w.Close())
		b, err := ReadSecret(path, 10)
		require.NoError(t, err)
		require.Equal(t, "secret", string(b))
		require.NoError(t, r.Close())
	}
}

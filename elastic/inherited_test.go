//go:build unix

package elastic

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weft-project/weft/elastic/internal/pipe"
)

func TestAFileThatIsNotTheAgentsPipeIsRefusedAndLeftAlone(t *testing.T) {
	plain, err := os.Create(filepath.Join(t.TempDir(), "plain"))
	require.NoError(t, err)
	defer plain.Close()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	for name, c := range map[string]struct {
		file *os.File
		id   string
	}{"no pipe": {plain, ""}, "no pipe, and an id": {plain, pipe.ID(plain)}, "another pipe": {r, pipe.ID(r) + "0"}} {
		fd, err := syscall.Dup(int(c.file.Fd())) // Fd makes it blocking, as what a process inherits is
		require.NoError(t, err)
		t.Setenv(AgentVariable, strconv.Itoa(fd)+":"+c.id)
		_, err = Join(t.Context())
		require.ErrorContains(t, err, "it is another file", name)
		require.ErrorContains(t, err, "pass_fds=["+strconv.Itoa(fd)+"]", name)
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		require.NoError(t, err, "it was closed")
		require.Zero(t, flags&unix.O_NONBLOCK, name)
		require.NoError(t, syscall.Close(fd))
	}
}

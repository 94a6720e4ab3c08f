//go:build linux

package proctree_test

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/proctree"
)

func TestTheProcessesBelowOneAreItsChildrenAndTheirs(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `sh -c 'echo $$; read x; exit 0' <&3 & wait`)
	hold, release, err := os.Pipe()
	require.NoError(t, err)
	cmd.ExtraFiles = []*os.File{hold}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	grandchild, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)

	all := proctree.Below(os.Getpid(), nil)
	child := slices.Index(all, cmd.Process.Pid)
	require.GreaterOrEqual(t, child, 0)
	require.Greater(t, slices.Index(all, grandchild), child)
	require.Equal(t, []int{grandchild}, proctree.Below(cmd.Process.Pid, nil))
	all = proctree.Below(os.Getpid(), map[int]bool{cmd.Process.Pid: true})
	require.NotContains(t, all, grandchild)
	require.NoError(t, release.Close())
	require.NoError(t, cmd.Wait())
}

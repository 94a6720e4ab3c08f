package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLocalRankZeroReadsThePipeThatRunReads(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "run", "--nproc-per-node", "2", os.Args[0], "read")
	cmd.Env = append(os.Environ(), "WEFT_TEST_PART=weft", "GORACE=atexit_sleep_ms=0")
	cmd.Stdin = strings.NewReader("break main.main\n")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Run(), "%s", &out)
	require.Contains(t, out.String(), `[0] read "break main.main\n"`)
	require.Contains(t, out.String(), `[1] read ""`)
}

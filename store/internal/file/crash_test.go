package file

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/store/internal/kv"
)

// crashWriter names the file to which this test binary writes until it is killed, where it was
// started for that.
const crashWriter = "WEFT_TEST_FILE_WRITER"

func TestKilledWritersLoseNothingThatTheyWereToldIsWritten(t *testing.T) {
	if path := os.Getenv(crashWriter); path != "" {
		writeUntilKilled(path)
		return
	}
	torn := 0
	rounds := soak.Cases(3) // which kill after one, two and three
	for round := range rounds {
		path, at := filepath.Join(t.TempDir(), "s"), 0
		for writer := range 2 { // the second goes on where the first died
			at = killAfter(t, path, at+1+(round+writer)%3)
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			if _, err := torchSees(content); err != nil {
				torn++
			}
			at = requireUpTo(t, path, at)
		}
		f := openFile(t, path, Config{})
		for i := range at {
			v, ok, err := f.TryPop(t.Context(), "q")
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, strconv.Itoa(i+1), string(v))
		}
		seen, err := torchSees(contentOf(t, f))
		require.NoError(t, err)
		require.Equal(t, seen, valuesOf(t, f))
		require.NoError(t, os.Remove(path))
	}
	t.Logf("%d of %d writers died in a record", torn, 2*rounds)
}

// requireUpTo requires that all was written up to number at, and the next whole or not at all,
// whose number it returns then.
func requireUpTo(t *testing.T, path string, at int) int {
	t.Helper()
	f, c := openFile(t, path, Config{}), t.Context()
	values, err := f.MultiGet(c, "a", "b", "c")
	require.NoError(t, err)
	head, _, _ := bytes.Cut(values[0], []byte(" "))
	n, err := strconv.Atoi(string(head))
	require.NoError(t, err)
	require.True(t, n == at || n == at+1, "%d was there, and %d was read", at, n)
	for _, v := range values {
		require.True(t, bytes.Equal(crashValue(n), v), "some of a MultiSet is missing")
	}
	pushed, err := f.Len(c, "q")
	require.NoError(t, err)
	require.True(t, int(pushed) == at || int(pushed) == at+1, "%d were pushed, and %d are there", at, pushed)
	for ; int(pushed) < n; pushed++ {
		require.NoError(t, f.Push(c, "q", strconv.AppendInt(nil, pushed+1, 10)))
	}
	return n
}

// crashValue is a value that takes the system a while to write.
func crashValue(i int) []byte {
	return append(strconv.AppendInt(nil, int64(i), 10), bytes.Repeat([]byte{' '}, 128<<10)...)
}

// killAfter starts a writer, kills it when it has said that number to was written, and has begun
// another, and returns the last that it said.
func killAfter(t *testing.T, path string, to int) (last int) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), crashWriter+"="+path)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		last, err = strconv.Atoi(lines.Text())
		require.NoError(t, err)
		if last == to {
			for was := sizeOf(t, path); sizeOf(t, path) == was; { // until it writes the next
				runtime.Gosched()
			}
			require.NoError(t, cmd.Process.Kill())
		}
	}
	require.Error(t, cmd.Wait())
	require.GreaterOrEqual(t, last, to)
	return last
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Size()
}

func writeUntilKilled(path string) {
	f, err := New(path, Config{})
	c := context.Background()
	var n int64
	if err == nil {
		n, err = f.Len(c, "q")
	}
	for i := int(n) + 1; err == nil; i++ {
		v := crashValue(i)
		if err = f.MultiSet(c, kv.Pair{Key: "a", Value: v}, kv.Pair{Key: "b", Value: v}, kv.Pair{Key: "c", Value: v}); err == nil {
			err = f.Push(c, "q", strconv.AppendInt(nil, int64(i), 10))
		}
		if err == nil {
			fmt.Println(i)
		}
	}
	fmt.Println(err)
}

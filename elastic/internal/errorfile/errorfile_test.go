//go:build unix

package errorfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestAnErrorFileMayBePyTorchsOrPlain(t *testing.T) {
	torch := `{"message": {"message": "ValueError: bad", "extraInfo": {"py_callstack": "Traceback (most recent call last):\n  File \"a.py\"\nValueError: bad\n", "timestamp": "1700000000"}}}`
	for text, want := range map[string]Reason{
		torch:                      {"ValueError: bad", []string{"Traceback (most recent call last):", `  File "a.py"`, "ValueError: bad"}, time.Unix(1700000000, 0)},
		`{"message": "plain"}`:     {Message: "plain"},
		" just a text\n":           {Message: "just a text"},
		`{"message": {"message"`:   {Message: `{"message": {"message"`},
		"":                         {},
		`{"message":{"extraInfo":`: {Message: `{"message":{"extraInfo":`},
		`{"message":{"message":"x","extraInfo":{"timestamp":"soon"}}}`: {Message: "x"},
	} {
		require.Equal(t, want, Parse([]byte(text)), text)
	}
}

func TestAnEndlessErrorFileIsReadUpToABound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "error.json")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("x", 3*MaxSize)), 0o600))
	require.Len(t, File{Path: path}.Read(), MaxSize)
	require.Empty(t, File{Path: filepath.Join(path, "none")}.Read())
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	require.Empty(t, File{Path: fifo}.Read(), "nobody writes into it, ever")
}

package secret

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/private"
)

// written makes a file with a text that its user alone can read.
func written(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestABadTokenFileIsRefused(t *testing.T) {
	for name, content := range map[string]string{"empty": " \n", "two lines": "a\nb\n", "long": strings.Repeat("x", maxFile+1)} {
		file := written(t, content)
		_, err := ReadFile(file)
		require.ErrorContains(t, err, file+": expected ", name)
	}
	short := written(t, "hello\n")
	_, err := ReadFile(short)
	require.ErrorContains(t, err, short+": the job's secret is too weak")
}

func TestAnEnvironmentGivesTheSecretOrAFileWithItAndNotBoth(t *testing.T) {
	token := New()
	file, open := written(t, token+"\n"), written(t, token)
	require.NoError(t, os.Chmod(open, 0o644))
	for _, c := range []struct {
		variable, file, want, named, err string
		is                               error
	}{
		{"", "", "", "", "", nil},
		{" ", "", "", "", "", nil},
		{token + "\n", "", token, "$WEFT_TOKEN", "", nil},
		{"", file, token, "$WEFT_TOKEN_FILE", "", nil},
		{token, file, "", "$WEFT_TOKEN and $WEFT_TOKEN_FILE", "$WEFT_TOKEN and $WEFT_TOKEN_FILE are both set", nil},
		{"short", "", "", "$WEFT_TOKEN", "$WEFT_TOKEN: the job's secret is too weak", ErrWeak},
		{"", open, "", "$WEFT_TOKEN_FILE", "$WEFT_TOKEN_FILE: " + open + ": others can read", private.ErrOpen},
		{"", file + "-none", "", "$WEFT_TOKEN_FILE", "$WEFT_TOKEN_FILE: open " + file + "-none: no such file", os.ErrNotExist},
	} {
		get := func(name string) string { return map[string]string{Variable: c.variable, FileVariable: c.file}[name] }
		require.Equal(t, c.named, Named(get))
		got, err := FromEnv(get)
		require.Equal(t, c.want, got)
		if c.err == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.err)
		if c.is != nil {
			require.ErrorIs(t, err, c.is)
		}
	}
}

package secrets

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/hostile"
	"github.com/weft-project/weft/transport"
)

func TestACertificateAndAKeyThatAreSwappedAreSaidToBe(t *testing.T) {
	files, err := hostile.Certificates(t.TempDir(), "weft://j/worker0")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(files.Cert, 0o600)) // as a key
	right := transport.IdentityFiles{CA: files.CA, Cert: files.Cert, Key: files.Key}
	f := Flags{files: right}
	_, err = f.Identify(right, "j", nil)
	require.NoError(t, err)
	wrong := transport.IdentityFiles{CA: files.CA, Cert: files.Key, Key: files.Cert}
	f = Flags{files: wrong}
	_, err = f.Identify(wrong, "j", nil)
	require.ErrorContains(t, err, "the certificate and its key look swapped: "+files.Key+" holds a private key")
}

func TestATokenIsNotWrittenOverAnother(t *testing.T) {
	file := filepath.Join(t.TempDir(), "job.token")
	make := func(args ...string) error {
		cmd := Command(&bytes.Buffer{})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(args)
		return cmd.Execute()
	}
	require.NoError(t, make("--output", file))
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	require.EqualError(t, make("--output", file), "--output: "+file+" is there already, and is kept: name another file, or remove that one first")
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.EqualError(t, make(file), "expected no arguments, got "+file+"; to write a file: weft token --output "+file)
}

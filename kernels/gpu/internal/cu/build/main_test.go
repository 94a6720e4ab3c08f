//go:build (darwin || freebsd || linux) && (amd64 || arm64)

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWithoutNVRTCTheErrorSaysWhatToInstall(t *testing.T) {
	lib := filepath.Join(t.TempDir(), soname)
	require.NoError(t, os.WriteFile(lib, []byte("no library"), 0o600))
	for _, path := range []string{lib, lib + ".gone"} {
		err := run([]string{".."}, path, true)
		require.ErrorContains(t, err, path)
		require.ErrorContains(t, err, "nvidia-cuda-nvrtc-cu11==11.8.89")
		require.ErrorContains(t, err, "libnvrtc11.2")
	}
}

func TestAFolderWithoutSourcesIsRefused(t *testing.T) {
	require.ErrorContains(t, run([]string{"..", t.TempDir()}, "", true), "has no *.cu")
}

func TestWhatNamesTheCompilersBuildIsLeftOut(t *testing.T) {
	require.Equal(t, ".version 7.8\n", string(uncommented([]byte("//\n// Compiler Build ID: 1\n//\n\n.version 7.8\n"))))
	require.Equal(t, ".target", string(uncommented([]byte(".target"))))
}

//go:build (darwin || freebsd || linux) && (amd64 || arm64)

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWithoutNVRTCTheErrorSaysWhatToInstall(t *testing.T) {
	lib := filepath.Join(t.TempDir(), "libnvrtc.so.11.2")
	require.NoError(t, os.WriteFile(lib, []byte("no library"), 0o600))
	for _, path := range []string{lib, lib + ".gone"} {
		err := run([]string{".."}, map[string]string{"11.8": path}, "", true)
		require.ErrorContains(t, err, path)
		require.ErrorContains(t, err, "nvidia-cuda-nvrtc-cu11==11.8.89")
		require.ErrorContains(t, err, "libnvrtc11.2")
		err = run([]string{".."}, map[string]string{"11.8": path, "12.9": path}, "", true)
		require.ErrorContains(t, err, "nvidia-cuda-nvrtc-cu12==12.9.86")
	}
}

func TestAnotherAssemblerIsRefusedAndTheErrorSaysWhatToInstall(t *testing.T) {
	other := filepath.Join(t.TempDir(), "ptxas")
	require.NoError(t, os.WriteFile(other, []byte("#!/bin/sh\necho V11.8.89\n"), 0o700))
	for _, path := range []string{other, other + ".gone"} {
		_, err := openPTXAS(path)
		require.ErrorContains(t, err, path+" is not ptxas V12.9.86")
		require.ErrorContains(t, err, "nvidia-cuda-nvcc-cu12==12.9.86")
	}
}

func TestAKernelThatLacksRegistersIsRefusedButInFloat64(t *testing.T) {
	for name, refused := range map[string]bool{"product_f64": false, "product_f32": true} {
		fake := filepath.Join(t.TempDir(), "ptxas")
		said := "ptxas info    : Function properties for " + name + "\n    64 bytes stack frame, 33 bytes spill stores, 9 bytes spill loads"
		require.NoError(t, os.WriteFile(fake, []byte("#!/bin/sh\ntouch $4\necho '"+said+"'\n"), 0o700))
		_, err := (&assembler{fake}).assemble("gemm", nil, "90")
		if refused {
			require.ErrorContains(t, err, "gemm for sm_90: product_f32 spills 33 bytes")
		} else {
			require.NoError(t, err)
		}
	}
}

func TestAKernelThatTheAssemblerSlowsIsRefused(t *testing.T) {
	for said, refused := range map[string]bool{
		"ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to a call in the function 'f'":           true,
		"ptxas info    : (C9999) wgmma.mma_async instructions are serialized due to insufficient register resources in the function 'f'":              true,
		"ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored to maintain minimum register requirements.":                         true,
		"ptxas info    : setmaxnreg ignored; unable to determine register count at entry":                                                             true,
		"ptxas warning : Potential Performance Loss: of another kind":                                                                                 true,
		"ptxas info    : Compiling entry function 'attention_h_64' for 'sm_90a'\nptxas info    : Used 168 registers, used 4 barriers, 400 bytes cmem": false,
	} {
		fake := filepath.Join(t.TempDir(), "ptxas")
		require.NoError(t, os.WriteFile(fake, []byte("#!/bin/sh\ntouch $4\ncat <<'END' >&2\nptxas info    : 0 bytes gmem\n"+said+"\nEND\n"), 0o700))
		_, err := (&assembler{fake}).assemble("attention_h64", nil, "90a")
		if refused {
			require.EqualError(t, err, "attention_h64 for sm_90a: "+said)
		} else {
			require.NoError(t, err)
		}
	}
}

func TestAFolderWithoutSourcesIsRefused(t *testing.T) {
	require.ErrorContains(t, run([]string{"..", t.TempDir()}, nil, "", true), "has no *.cu")
}

func TestWhatNamesTheCompilersBuildIsLeftOut(t *testing.T) {
	require.Equal(t, ".version 7.8\n", string(uncommented([]byte("//\n// Compiler Build ID: 1\n//\n\n.version 7.8\n"))))
	require.Equal(t, ".target", string(uncommented([]byte(".target"))))
}

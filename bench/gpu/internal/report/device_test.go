package report

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
)

func TestModulesForOtherGPUsAreNotLoaded(t *testing.T) {
	for arch, bf16 := range map[int]bool{75: false, 80: true, 90: true, 100: true} {
		d := ptxtest.New(ptx.Config{Arch: arch})
		r := GPU{LoadMS: map[string]float64{}, LoadErrors: map[string]string{}}
		r.timeLoading(d, func(string) {})
		require.NoError(t, d.Close())
		require.Empty(t, r.LoadErrors, arch)
		require.Contains(t, r.LoadMS, "softmax", arch)
		_, loaded := r.LoadMS["bf16"]
		require.Equal(t, bf16, loaded, arch)
		_, loaded = r.LoadMS["attention_h64"]
		require.Equal(t, arch == 90, loaded, arch)
	}
}

func TestTheReportHasTheVersionOfTheDriversKernelModule(t *testing.T) {
	file := filepath.Join(t.TempDir(), "version")
	require.Empty(t, kernelModule(file))
	for text, want := range map[string]string{
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (x)\nGCC version:  gcc 13.3.0": ", driver 580.159.04",
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  525.60  Thu":                                                       ", driver 525.60", "nothing": "",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.Equal(t, want, kernelModule(file))
	}
}

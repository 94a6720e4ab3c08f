package report

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
)

func TestModulesForOtherGPUsAreNotLoaded(t *testing.T) {
	for arch, bf16 := range map[int]bool{75: false, 80: true, 90: true, 100: true} {
		d := ptxtest.New(ptx.Config{Arch: arch})
		r := GPU{LoadMS: map[string]float64{}, LoadErrors: map[string]string{}, Refused: map[string]string{}}
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

// refusing is a driver that takes no module with some text.
type refusing struct {
	cuda.Driver
	text string
}

func (d refusing) Load(image []byte) (cuda.Module, error) {
	if bytes.Contains(image, []byte(d.text)) {
		return nil, cuda.ErrImage
	}
	return d.Driver.Load(image)
}

func TestWhatModulesOfAnExperimentLackIsANote(t *testing.T) {
	for text, green := range map[string]bool{".target sm_90a": true, ".target sm_75": false} {
		r := GPU{LoadMS: map[string]float64{}, LoadErrors: map[string]string{}, Refused: map[string]string{}}
		r.timeLoading(refusing{ptxtest.New(ptx.Config{}), text}, func(string) {})
		require.Equal(t, green, Green(Result{State: Complete, GPU: &r}))
		if green {
			require.Contains(t, r.Notes(), "the module attention_h64, of an experiment, cannot be loaded: "+cuda.ErrImage.Error())
		}
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

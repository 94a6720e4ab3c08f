package main

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/bench/gpu/internal/report"
)

func TestWhoElseUsesTheGPUIsNoted(t *testing.T) {
	require.Empty(t, notesOf("0, NVIDIA H100 80GB HBM3, Default, Disabled, 81559, 1, 0\n", ""))
	require.Equal(t, []string{
		"GPU 0 (NVIDIA H100 80GB HBM3) is in compute mode Exclusive_Process: not every process may use it",
		"GPU 0 (NVIDIA H100 80GB HBM3) is cut into slices (MIG)",
		"of GPU 0 (NVIDIA H100 80GB HBM3), others hold 40960 of 81559 MiB",
		"GPU 0 (NVIDIA H100 80GB HBM3) is busy before anything has begun: 97 %",
		"process 4321 (python3) holds 40448 MiB of GPU-5a",
	}, notesOf("0, NVIDIA H100 80GB HBM3, Exclusive_Process, Enabled, 81559, 40960, 97\n", "GPU-5a, 4321, python3, 40448\n"))
	require.Empty(t, notesOf("Failed to initialize NVML: Driver/library version mismatch\n", "[Not Supported]\n\"\n"))
	require.Empty(t, notesOf("1, NVIDIA T4, Default, [N/A], 16384, [N/A], [N/A]\n", ""))

	require.Empty(t, (&report.GPU{Memory: 100, Free: 95, Name: "NVIDIA H100 80GB HBM3"}).Notes())
	require.Equal(t, []string{"of the GPU's memory 1.0 of 80.0 GiB are free: another process uses it", "this is a slice of a GPU (MIG): its figures are a slice's"},
		(&report.GPU{Memory: 80 << 30, Free: 1 << 30, Name: "NVIDIA H100 80GB HBM3 MIG 1g.10gb"}).Notes())
}

func TestTheMachineIsToldThoughNvidiasProgramHangsOrFails(t *testing.T) {
	for script, k := range map[string]struct {
		wait time.Duration
		want string
	}{
		"exec sleep 600":       {100 * time.Millisecond, "nvidia-smi: it did not answer in time"},
		"echo no NVML; exit 9": {time.Hour, "nvidia-smi: exit status 9"},
	} {
		t.Setenv("PATH", bundle(t, map[string]string{"nvidia-smi": script})+string(filepath.ListSeparator)+"/bin:/usr/bin")
		var out bytes.Buffer
		require.NoError(t, describe(t.Context(), k.wait, &out))
		require.Equal(t, k.want, linesOf(out.String())[0]["text"])
	}
}

func TestOnlyVariablesThatDecideWhatIsUsedAreTold(t *testing.T) {
	require.Equal(t, []string{"CUDA_VISIBLE_DEVICES=1", "WEFT_CUBLASLT=/lib"},
		variables([]string{"WEFT_TOKEN=secret", "WEFT_CUBLASLT=/lib", "CUDA_VISIBLE_DEVICES=1", "HOME=/root", "AWS_SECRET=x"}))
}

package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

func TestEachGPUIsAFindingAndWithoutOneTheReasonIs(t *testing.T) {
	gpus := []cuda.Info{{Name: "NVIDIA H200", Memory: 140 << 30, Arch: 90, Driver: 13000}, {Name: "Tesla P100", Memory: 16 << 30, Arch: 60, Driver: 12040}}
	require.Equal(t, []finding{
		{good, "cuda", "cuda:0 is NVIDIA H200, 140.0 GiB, sm_90, with a driver for CUDA 13.0"},
		{poor, "cuda", "cuda:1 is Tesla P100, 16.0 GiB, sm_60, with a driver for CUDA 12.4; it cannot be used: kernels need sm_75 or later"},
	}, judgeGPUs(gpus, nil, nil))
	require.Equal(t, []finding{{poor, "cuda", "everything runs on the CPU: no driver"}}, judgeGPUs(nil, nil, errors.New("no driver")))
	require.Contains(t, judgeGPUs(nil, nil, nil)[0].text, "no CUDA-capable device")
	require.NotEmpty(t, examineCUDA(true))
}

func TestTheLibraryOfProductsIsAFinding(t *testing.T) {
	require.Equal(t, finding{good, "cublaslt", "/x/libcublasLt.so.11, version 11.11.3"}, judgeLibrary("/x/libcublasLt.so.11", 111103, nil))
	require.Equal(t, finding{poor, "cublaslt", "products of matrices run on Weft's own kernels, which are slower: none"}, judgeLibrary("", 0, errors.New("none")))
}

func TestADeviceReportSaysHowMuchMemoryIsFree(t *testing.T) {
	gpus := []cuda.Info{{Name: "A", Memory: 80 << 30, Arch: 90, Driver: 13000}, {Name: "B", Memory: 80 << 30, Arch: 80, Driver: 13000}, {Name: "C", Arch: 70}}
	judged := func(first room) []finding {
		return judgeGPUs(gpus, []room{first, {30 << 30, nil}, {0, errors.New("not asked")}}, nil)
	}
	out := judged(room{79 << 30, nil})
	require.Equal(t, finding{good, "cuda", "cuda:0 is A, 80.0 GiB, sm_90, with a driver for CUDA 13.0, 79.0 free"}, out[0])
	require.Equal(t, finding{poor, "cuda", "cuda:1 is B, 80.0 GiB, sm_80, with a driver for CUDA 13.0, 30.0 free; other work uses 50.0 GiB"}, out[1])
	require.NotContains(t, out[2].text, "free")
	require.Contains(t, judged(room{0, device.ErrMemory})[0].text, "its memory is full")
	require.Contains(t, judged(room{0, device.ErrLost})[0].text, "it cannot be used: device is lost")
}

func TestTheLibraryOfProductsAndTheDriversCacheAreFindings(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	with := func(env map[string]string) finding { return judgeCache(func(name string) string { return env[name] }) }
	require.Equal(t, finding{good, "cuda cache", dir + "/.nv/ComputeCache"}, with(map[string]string{"HOME": dir}))
	require.Equal(t, finding{good, "cuda cache", dir}, with(map[string]string{"HOME": file, "CUDA_CACHE_PATH": dir, "CUDA_CACHE_DISABLE": "0"}))
	require.Contains(t, with(map[string]string{"HOME": dir, "CUDA_CACHE_DISABLE": "1"}).text, "is set")
	bad := with(map[string]string{"CUDA_CACHE_PATH": file + "/cache"})
	require.Equal(t, poor, bad.verdict)
	require.Contains(t, bad.text, "cannot be written")
	require.Contains(t, with(nil).text, "there is no HOME")
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1, "nothing is left")
}

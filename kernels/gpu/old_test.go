package gpu

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/stillgpu"
	"github.com/weft-project/weft/kernels/gpu/internal/cu"
)

func TestAGPUThatIsTooOldIsRefusedWithASentence(t *testing.T) {
	for _, arch := range []int{35, 70, 72} {
		_, driver := stillgpu.Config{Arch: arch}.New()
		_, err := On(driver, device.CUDA(0))
		require.ErrorIs(t, err, ErrConfig)
		require.ErrorContains(t, err, "compute capability "+map[int]string{35: "3.5", 70: "7.0", 72: "7.2"}[arch]+"; kernels need 7.5 or later")
	}
	_, driver := stillgpu.Config{Arch: OldestArch}.New()
	on(t, driver)
}

// What a GPU of 7.5 has in the place of the kernels for 8.0 is float32: it would refuse their text,
// as the interpreter does.
func TestTheOldestGPUComputesEveryInstructionThoughBFloat16IsWanted(t *testing.T) {
	kerneltest.RunFew(t, func(t *testing.T) device.Device {
		d, err := Config{Precision: BF16}.On(ptx.New(ptx.Config{Arch: OldestArch}), device.CUDA(0))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		return d
	})
}

func TestOnlyKernelsForBFloat16NeedTensorCores(t *testing.T) {
	var newer []string
	for name := range cu.Modules() {
		if !strings.Contains(string(cu.Module(name)), ".target sm_75") {
			newer = append(newer, name)
		}
	}
	require.ElementsMatch(t, []string{"attention_b64", "attention_b128", "attention_bf16", "bf16", "entropy_bf16", "norm_bf16"}, newer)
}

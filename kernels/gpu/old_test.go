package gpu

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/internal/stillgpu"
	"github.com/weft-project/weft/kernels"
	backends "github.com/weft-project/weft/kernels/backend"
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

// What a GPU of 7.5 has in the place of the kernels for 8.0 is float32: it would refuse their text.
func TestTheOldestGPUNeedsNoKernelForALaterOneThoughBFloat16IsWanted(t *testing.T) {
	still, driver := stillgpu.Config{Arch: OldestArch}.New()
	d, err := Config{Precision: BF16}.On(driver, device.CUDA(0))
	require.NoError(t, err)
	b, err := backends.For(d)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(7, 5))
	for _, family := range kerneltest.Families() {
		for range soak.Cases(20) {
			i, in := kerneltest.Case(r, family)
			types := make([]kernels.Type, len(in))
			for k, x := range in {
				types[k] = x.Type
			}
			_, err := b.Prepare(i, types)
			require.NoError(t, err, "%v", i)
		}
	}
	require.NoError(t, d.Close())
	texts, codes := still.Loaded()
	require.Zero(t, codes)
	require.NotEmpty(t, texts)
	for _, text := range texts {
		require.Contains(t, text, ".target sm_75")
	}
}

func TestOnlyKernelsForBFloat16NeedTensorCores(t *testing.T) {
	var newer []string
	for name := range cu.Modules() {
		if !strings.Contains(string(cu.Module(name)), ".target sm_75") {
			newer = append(newer, name)
		}
	}
	require.ElementsMatch(t, []string{"attention_b64", "attention_b96", "attention_b128", "attention_b256", "attention_h64", "attention_h128", "bf16", "entropy_bf16", "norm_bf16"}, newer)
}

package gpu

import (
	_ "embed"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/stillgpu"
	"github.com/weft-project/weft/kernels"
	backends "github.com/weft-project/weft/kernels/backend"
	"github.com/weft-project/weft/kernels/gpu/internal/gen"
)

// ofDigits are the texts of kernels of which there is machine code.
//
//go:embed internal/ahead/testdata/digits.ptx
var ofDigits string

// prepared says how generated kernels came to a GPU: one that digits has, another of no program,
// and the first again.
func prepared(t *testing.T, c stillgpu.Config) (texts []string, ways []kernels.Way) {
	still, driver := c.New()
	d := on(t, driver)
	b, err := backends.For(d)
	require.NoError(t, err)
	for _, n := range []int{128, 1009, 128} {
		_, err := b.Prepare(kernels.Fill{Type: kernels.Type{Dtype: device.Float32, Shape: device.Shape{n}}}, nil)
		require.NoError(t, err)
	}
	texts, codes := still.Loaded()
	require.Equal(t, !c.Refuses && c.Arch != 75, codes > 0)
	return texts, backends.Ways(d)
}

func TestAGeneratedKernelIsLoadedAsMachineCodeWhereThereIsSome(t *testing.T) {
	for _, arch := range []int{80, 89, 90} {
		texts, ways := prepared(t, stillgpu.Config{Arch: arch})
		require.Len(t, texts, 1, "the one of no program")
		require.Contains(t, ways, kernels.Way{Work: "module", By: "PTX", Why: whyGenerated, Times: 1})
		require.Equal(t, kernels.Way{Work: "module", By: "machine code", Times: 1}, ways[1])
	}
	texts, ways := prepared(t, stillgpu.Config{Arch: 75})
	require.Len(t, texts, 2)
	require.Equal(t, []kernels.Way{{Work: "module", By: "PTX", Why: whyGenerated, Times: 2}}, ways)
}

func TestADriverThatTakesNoMachineCodeCompilesGeneratedKernels(t *testing.T) {
	texts, ways := prepared(t, stillgpu.Config{Refuses: true})
	require.Len(t, texts, 2)
	require.Len(t, ways, 2)
	require.Equal(t, whyFailedCubin, ways[1].Why)
	require.NotEmpty(t, ways[1].Last)
}

func TestKernelsThatAreWantedAtOnceAreEachFoundByTheirText(t *testing.T) {
	still, driver := stillgpu.Config{}.New()
	m := &on(t, driver).Memory().(*memory).backend.made
	ks := gen.Bodies(ofDigits)
	strange := func(k int) string { return strings.Replace(ks[k].Body, "ret;", "ret; // another", 1) }
	wanted := []string{ks[0].Body, strange(0), strange(1), ks[0].Body, ks[1].Body}
	fns, hold, err := m.load(wanted)
	require.NoError(t, err)
	require.Len(t, hold, 3)
	names := []string{}
	for _, f := range fns {
		names = append(names, f.Name())
	}
	require.Equal(t, []string{"weft_0", "weft_0", "weft_1", "weft_0", "weft_0"}, names)
	again, hold, err := m.load(wanted[:2])
	require.NoError(t, err)
	require.Equal(t, fns[:2], again)
	require.Len(t, hold, 2)
	texts, codes := still.Loaded()
	require.Equal(t, []int{1, 2}, []int{len(texts), codes})
}

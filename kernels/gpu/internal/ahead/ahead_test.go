package ahead

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/kernels/gpu/internal/cu"
	"github.com/weft-project/weft/kernels/gpu/internal/gen"
)

func TestEveryTextHasMachineCodeForEachGenerationAndNothingElseDoes(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.ptx")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	all := map[string]gen.Kernel{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, k := range gen.Bodies(string(text)) {
			all[Name(k)] = k
		}
	}
	require.NotEmpty(t, all)
	for arch, some := range map[int]bool{70: false, 75: false, 80: true, 86: true, 90: true, 100: false} {
		shelf := Open(arch)
		for _, k := range all {
			cubin := shelf.Cubin(k)
			require.Equal(t, some, bytes.HasPrefix(cubin, []byte("\x7fELF")), "sm_%d: go run ./kernels/gpu/internal/cu/build", arch)
			_, name := Text(k)
			require.Equal(t, some, bytes.Contains(cubin, []byte(name+"\x00")), "the kernel's name")
		}
		require.Nil(t, shelf.Cubin(gen.Kernel{Body: "none"}))
	}
	for _, arch := range cu.Archs() {
		b, err := archives.ReadFile(cu.CubinArchive(arch))
		require.NoError(t, err)
		files, err := cu.Unpack(b)
		require.NoError(t, err)
		require.ElementsMatch(t, slices.Collect(maps.Keys(all)), slices.Collect(maps.Keys(files)), "go run ./kernels/gpu/internal/cu/build")
	}
}

func TestATextIsAModuleOfItsKernelAlone(t *testing.T) {
	k := gen.Kernel{Body: "(\n)\n{\n\tret;\n}\n"}
	text, name := Text(k)
	require.Equal(t, []gen.Kernel{k}, gen.Bodies(text))
	require.Contains(t, text, " "+name+"(")
}

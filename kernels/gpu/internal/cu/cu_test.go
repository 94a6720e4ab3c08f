package cu

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sources are the CUDA sources by their module.
func sources(t *testing.T) map[string][]byte {
	paths, err := filepath.Glob("*.cu")
	require.NoError(t, err)
	all := map[string][]byte{}
	for _, p := range paths {
		all[strings.TrimSuffix(p, ".cu")], err = os.ReadFile(p)
		require.NoError(t, err)
	}
	return all
}

func TestEverySourceHasItsPTXInItsArchiveAndNothingElseDoes(t *testing.T) {
	all, want := sources(t), map[string][]string{}
	require.Len(t, Modules(), len(all))
	for name, source := range all {
		require.Contains(t, Modules(), name)
		require.NotEmpty(t, Module(name))
		want[Archive(source)] = append(want[Archive(source)], name+".ptx")
	}
	require.Nil(t, Module("none"))
	paths, err := filepath.Glob("*.zip")
	require.NoError(t, err)
	require.Len(t, paths, len(want)+len(Archs())+1)
	for archive, names := range want {
		b, err := os.ReadFile(archive)
		require.NoError(t, err)
		files, err := Unpack(b)
		require.NoError(t, err)
		require.ElementsMatch(t, names, slices.Collect(maps.Keys(files)))
		for _, name := range names {
			require.Equal(t, files[name], Module(strings.TrimSuffix(name, ".ptx")))
			require.Contains(t, string(files[name]), "\n.target sm_"+strings.TrimSuffix(strings.TrimPrefix(archive, "compute_"), ".zip"))
		}
	}
}

// only90 are the modules for compute capability 9.0 and no other.
var only90 = []string{"attention_h64", "attention_h128"}

func TestEveryModuleHasACubinOfItsPTXForEachGPUOfAGenerationAndForNoOther(t *testing.T) {
	for arch, from := range map[int]int{75: 0, 80: 80, 86: 80, 89: 80, 90: 90, 100: 0, 120: 0} {
		for name := range Modules() {
			cubin, archive, modules := Cubin(name, arch), CubinArchive(from), len(Modules())-len(only90)
			if slices.Contains(only90, name) {
				archive, modules = HopperArchive, len(only90)
			}
			if from == 0 || slices.Contains(only90, name) && arch != 90 {
				require.Nil(t, cubin)
				continue
			}
			require.Equal(t, "\x7fELF", string(cubin[:4]))
			b, err := archives.ReadFile(archive)
			require.NoError(t, err)
			files, err := Unpack(b)
			require.NoError(t, err)
			require.Len(t, files, 2*modules)
			require.Equal(t, string(OfPTX(Module(name))), string(files[name+".of"]), "%s: run go run ./kernels/gpu/internal/cu/build", name)
			require.Equal(t, files[name+".cubin"], cubin)
		}
	}
	require.Nil(t, Cubin("none", 90))
}

func TestAnArchiveIsTheSameForTheSameFilesAndIsReadWholeOrNotAtAll(t *testing.T) {
	files := map[string][]byte{"b.ptx": []byte(strings.Repeat("b", 1000)), "a.ptx": nil, "c.ptx": []byte("c")}
	var one, two bytes.Buffer
	require.NoError(t, Pack(&one, files))
	require.NoError(t, Pack(&two, maps.Clone(files)))
	require.Equal(t, one.Bytes(), two.Bytes())
	back, err := Unpack(one.Bytes())
	require.NoError(t, err)
	files["a.ptx"] = []byte{}
	require.Equal(t, files, back)
	for n := range one.Len() {
		_, err := Unpack(one.Bytes()[:n])
		require.Error(t, err, "cut off after %d bytes", n)
	}
	damaged := bytes.Clone(one.Bytes())
	damaged[bytes.Index(damaged, []byte("b.ptx"))+len("b.ptx")+1] ^= 1
	_, err = Unpack(damaged)
	require.ErrorContains(t, err, "b.ptx")
}

func TestThePTXWasMadeOfTheSourcesAsTheyAre(t *testing.T) {
	for name, source := range sources(t) {
		headers, err := Headers(source, os.ReadFile)
		require.NoError(t, err)
		require.NotEmpty(t, headers)
		first, _, _ := bytes.Cut(Module(name), []byte("\n"))
		require.Equal(t, Stamp(name+".cu", source, headers), string(first)+"\n", "run go run ./kernels/gpu/internal/cu/build")
		require.NotEqual(t, Stamp(name+".cu", append(source, ' '), headers), string(first)+"\n", "a change must show")
		for k := range headers {
			changed := slices.Clone(headers)
			changed[k].Text = append(slices.Clone(changed[k].Text), ' ')
			require.NotEqual(t, Stamp(name+".cu", source, changed), string(first)+"\n", "a change of %s must show", headers[k].Name)
		}
	}
}

func TestTheKernelsListedAreThoseThatThePTXHas(t *testing.T) {
	entry := regexp.MustCompile(`\.visible \.entry (\w+)\(`)
	for name, kernels := range Modules() {
		var want, got []string
		for _, k := range kernels {
			if strings.HasSuffix(k, "!") {
				want = append(want, strings.TrimSuffix(k, "!"))
				continue
			}
			want = append(want, k+"_f32", k+"_f64")
		}
		for _, m := range entry.FindAllSubmatch(Module(name), -1) {
			got = append(got, string(m[1]))
		}
		slices.Sort(want)
		slices.Sort(got)
		require.Equal(t, want, got, name)
	}
}

func TestOptionsAreTheSameButForWhatASourceAsksFor(t *testing.T) {
	require.Contains(t, Options(nil), "--gpu-architecture=compute_75")
	o := Options([]byte("#include \"common.cuh\"\n// nvrtc: --gpu-architecture=compute_80\n// nvrtc: --fmad=false\n"))
	require.Contains(t, o, "--gpu-architecture=compute_80")
	require.Contains(t, o, "--fmad=false")
	require.NotContains(t, o, "--gpu-architecture=compute_75")
}

func TestHeadersAreFoundThroughHeadersEachOnce(t *testing.T) {
	files := map[string]string{"a.cuh": "#include \"b.cuh\"\n", "b.cuh": "#include \"c.cuh\"\n// #include \"none\"\n", "c.cuh": ""}
	read := func(name string) ([]byte, error) {
		text, ok := files[name]
		if !ok {
			return nil, fs.ErrNotExist
		}
		return []byte(text), nil
	}
	all, err := Headers([]byte("#include \"a.cuh\"\n#include \"c.cuh\"\n"), read)
	require.NoError(t, err)
	var names []string
	for _, h := range all {
		names = append(names, h.Name)
	}
	require.Equal(t, []string{"c.cuh", "b.cuh", "a.cuh"}, names)
	files["c.cuh"] = "#include \"none\"\n"
	_, err = Headers([]byte("#include \"a.cuh\"\n"), read)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

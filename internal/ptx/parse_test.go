package ptx

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device/cuda"
)

// texts are what NVRTC made of the kernels in testdata.
func texts(t testing.TB) map[string]string {
	t.Helper()
	names, err := filepath.Glob("testdata/*.ptx")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	out := map[string]string{}
	for _, n := range names {
		b, err := os.ReadFile(n)
		require.NoError(t, err)
		out[strings.TrimSuffix(filepath.Base(n), ".ptx")] = string(b)
	}
	return out
}

func TestWhatTheCompilerWritesIsLoaded(t *testing.T) {
	m := New(Config{})
	for name, text := range texts(t) {
		mod, err := m.Load([]byte(text))
		require.NoError(t, err, name)
		require.NotEmpty(t, mod.(*module).kernels, name)
		require.NoError(t, mod.Unload())
	}
	free, err := m.Room()
	require.NoError(t, err)
	require.Equal(t, 1<<30, free, "variables are freed with their module")
}

// whole makes a module of a kernel's body.
func whole(body string) string {
	return ".version 7.8\n.target sm_75\n.address_size 64\n" + body
}

func TestAnInstructionThatIsNotUnderstoodIsNamedWithItsLine(t *testing.T) {
	_, err := New(Config{}).Load([]byte(whole(".visible .entry k()\n{\n.reg .b32 %r<3>;\n\twiggle.b32 %r1, %r2;\nret;\n}\n")))
	require.ErrorIs(t, err, cuda.ErrImage)
	require.ErrorContains(t, err, "k, line 7")
	require.ErrorContains(t, err, "wiggle.b32 %r1, %r2")
}

func TestNothingOfAnAddressIsLeftUnread(t *testing.T) {
	load := func(address string) error {
		_, err := New(Config{}).Load([]byte(whole(".visible .entry k()\n{\n.reg .b32 %r<3>;\n.reg .b64 %rd<3>;\nld.global.u32 %r1, [" + address + "];\nret;\n}\n")))
		return err
	}
	for _, address := range []string{"%rd1", "%rd1+8", "%rd1+-8"} {
		require.NoError(t, load(address), address)
	}
	for _, address := range []string{"%rd1, 8", "%rd1, %r2", "%rd1, {}", "%rd1, (%r2)", "%rd1, [%rd2]", "%rd1, [%rd2, {%r2}]"} {
		require.ErrorContains(t, load(address), "line 8: expected the coordinates", address)
	}
	for _, address := range []string{"%rd1, {%r2}", "%rd1, {%r2, %r2}"} {
		require.ErrorContains(t, load(address), "expected an address and a type", address)
	}
}

func FuzzLoad(f *testing.F) {
	all := texts(f)
	f.Add(all["warps"]) // the others are large, and slow
	f.Add(all["matrix80"])
	f.Add(whole(".const .align 4 .b8 t[4] = {1, 0xFF, -3};\n.entry k(.param .align 8 .b8 p[16]) .maxntid 32, 1, 1 { .reg .pred %p<2>; .local .b32 x; @!%p1 bra A; A: }"))
	f.Add(whole(".func f() { call f, (); ret; } .entry k() { call f, (); }"))
	f.Add(whole(".func f() { } .func g() { call f; call f; } .entry k() { call g; }"))
	f.Fuzz(func(_ *testing.T, text string) {
		_, _ = New(Config{Bytes: 1 << 20}).Load([]byte(text))
	})
}

package ptx

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

func TestALaunchThatDoesNotFitItsKernelIsRefused(t *testing.T) {
	r := newRig(t, Config{}, whole(`
.visible .entry k(.param .u64 at, .param .u32 n, .param .align 8 .b8 s[12]) .maxntid 64, 1, 1
{ .shared .align 4 .b8 box[1024]; ret; }`))
	at := up(r, []float32{1})
	good := []any{at, 1, 0, int64(0), 0} // the structure begins at a multiple of 8
	require.NoError(t, r.launch("k", 1, 64, 100, good...))
	require.ErrorContains(t, r.launch("k", 1, 64, 0, at, 1), "12 bytes of arguments; its 3 parameters have 28")
	require.ErrorContains(t, r.launch("k", 1, 65, 0, good...), "made for 64")
	require.ErrorContains(t, r.launch3("k", [3]uint32{1, 1 << 16, 1}, [3]uint32{1, 1, 1}, 0, good...), "a grid of")
	_, err := r.mod.Func("k", 227<<10)
	require.ErrorIs(t, err, cuda.ErrLaunch, "it has 1024 bytes of its own")
	require.NoError(t, r.s.Sync(), "a refusal loses nothing")
	require.NoError(t, r.mod.Unload())
	_, err = r.mod.Func("k", 0)
	require.ErrorIs(t, err, cuda.ErrImage)
}

func TestTextForALaterProcessorIsRefused(t *testing.T) {
	text := texts(t)["matrix80"]
	_, err := New(Config{Arch: 75}).Load([]byte(text))
	require.ErrorIs(t, err, cuda.ErrImage)
	require.ErrorContains(t, err, "text for sm_80 on a machine of 75")
	_, err = New(Config{Arch: 80}).Load(append([]byte(text), 0))
	require.NoError(t, err, "a zero at the end is no matter")
}

func TestTextThatIsWrongSaysWhere(t *testing.T) {
	for says, text := range map[string]string{
		"no label L":                   "bra L;",
		"%r9 is not declared":          "add.u32 %r0, %r1, %r9;",
		"%r5 is not declared":          "add.u32 %r0, %r1, %r5;",
		"%p1 is a predicate":           "add.u32 %r0, %r1, %p1;",
		"%r1 is not a predicate":       "@%r1 add.u32 %r0, %r1, %r2;",
		"2 registers, expected 4":      "ld.global.v4.u32 {%r1, %r2}, [%d1];",
		"a store to what":              "st.param.u32 [p], %r1;",
		"nothing is not a function":    "call nothing, ();",
		"expected \",\"":               "add.u32 %r0 %r1;",
		"a function without an end":    "{ add.u32 %r0, %r1, %r2;",
		"calls itself":                 "call again, ();",
		"too deep":                     "{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{",
		"bytes of local memory":        ".local .b8 big[600000];",
		"expected .lo, .hi or .wide":   "mul.u32 %r0, %r1, %r2;",
		"a predicate more is for .and": "setp.eq.and.u32 %p1, %r1, %r2;",
	} {
		_, err := New(Config{}).Load([]byte(whole(".func again() { call again, (); }\n.entry k(.param .u64 p) {\n.reg .b32 %r<5>; .reg .b64 %d<2>; .reg .pred %p<2>;\n" + text + "\n}\n")))
		require.ErrorIs(t, err, cuda.ErrImage, text)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, "line ")
	}
}

func TestMemoryThatItsOwnerFreedIsNotUsedByOthers(t *testing.T) {
	host := new(Host)
	a, b := newRig(t, Config{Host: host}, texts(t)["basic"]), newRig(t, Config{Host: host}, texts(t)["basic"])
	at := up(a, []float32{1, 2})
	h, err := a.m.Export(at)
	require.NoError(t, err)
	there, err := b.m.Import(h)
	require.NoError(t, err)
	require.NoError(t, b.s.Zero(there, 4))
	require.Equal(t, []float32{0, 2}, down[float32](a, at, 2))
	require.NoError(t, a.m.Free(at))
	err = b.s.Zero(there, 4)
	require.ErrorIs(t, err, device.ErrBounds)
	require.ErrorContains(t, err, "its owner has freed")
	require.NoError(t, b.m.Unimport(there))
}

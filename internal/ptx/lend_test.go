package ptx

import (
	"encoding/binary"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/ptx/simt"
)

func TestKernelsUseMemoryThatIsLentUntilItIsTakenBack(t *testing.T) {
	text, err := os.ReadFile("testdata/basic.ptx")
	require.NoError(t, err)
	m := New(Config{})
	s, err := m.Stream()
	require.NoError(t, err)
	mod, err := m.Load(text)
	require.NoError(t, err)
	f, err := mod.Func("vec_add", 0)
	require.NoError(t, err)
	shape, ok := ShapeOf(f)
	require.True(t, ok)
	require.Equal(t, Shape{At: []int{0, 8, 16, 24}, Size: []int{8, 8, 8, 8}}, shape)
	_, ok = ShapeOf(nil)
	require.False(t, ok)

	own, err := m.Alloc(8)
	require.NoError(t, err)
	a, c := make([]byte, 8), make([]byte, 8)
	binary.LittleEndian.PutUint32(a[4:], math.Float32bits(1.5))
	const atA, atC = 0x300000002000, 0x300000001000
	var l cuda.List
	l.Add(f, [3]uint32{1, 1, 1}, [3]uint32{32, 1, 1}, 0)
	for _, at := range []uintptr{atA, atA, atC} {
		l.Addr(at)
	}
	l.U64(2)
	m.Lend([]simt.Piece{{At: atA, Mem: a}, {At: 0x300000003000}, {At: atC, Mem: c}})
	require.NoError(t, s.Run(&l))
	require.Equal(t, float32(3), math.Float32frombits(binary.LittleEndian.Uint32(c[4:])))
	require.NoError(t, s.Zero(own, 8), "the machine's own memory stays")
	m.Lend(nil)
	var fault *simt.Fault
	require.ErrorAs(t, s.Run(&l), &fault)
	require.NoError(t, m.Free(own))
}

package gen

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/internal/soak"
)

// TestDivisionByAConstantIsExact divides what lies at multiples of the divisor and beside them, up
// to the greatest index.
func TestDivisionByAConstantIsExact(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for _, wide := range []bool{false, true} {
		most := math.MaxInt32
		if wide {
			most = math.MaxInt64
		}
		divisors := []int{1, 2, 3, 5, 6, 7, 10, 641, 1 << 20, 1<<20 + 1, most, most - 1, most/2 + 1, most / 3}
		for range soak.Cases(30) {
			divisors = append(divisors, 1+int(r.Uint64()%uint64(most))>>r.IntN(30))
		}
		for _, d := range divisors {
			values := []int{0, 1, most, most - 1}
			for range 28 {
				at := int(r.Uint64()%uint64(most))/d*d - r.IntN(2)
				values = append(values, max(at, 0))
			}
			require.Equal(t, quotients(values, d), divided(t, values, d, wide), "by %d", d)
		}
	}
}

func quotients(values []int, d int) []int {
	out := make([]int, len(values))
	for k, v := range values {
		out[k] = v / d
	}
	return out
}

// divided has the interpreter divide 32 values.
func divided(t *testing.T, values []int, d int, wide bool) []int {
	e := &emitter{}
	x := index{e, wide}
	at := e.op("add.s64", e.global(Param{}), e.op("mul.wide.u32", e.op("mov.u32", "%tid.x"), "8"))
	v := e.op("ld.global.u64", "["+at+"]")
	if !wide {
		v = e.op("cvt.u32.u64", v)
	}
	q := x.over(v, d)
	if !wide {
		q = e.op("cvt.u64.u32", q)
	}
	e.line("st.global.u64 [%s], %s;", at, q)
	text, names := Module([]Kernel{{Body: e.text(32)}})
	m := ptxtest.New(ptx.Config{})
	mod, err := m.Load([]byte(text))
	require.NoError(t, err)
	f, err := mod.Func(names[0], 0)
	require.NoError(t, err)
	s, err := m.Stream()
	require.NoError(t, err)
	mem, err := m.Alloc(8 * len(values))
	require.NoError(t, err)
	raw, err := m.Pin(8 * len(values))
	require.NoError(t, err)
	for k, v := range values {
		binary.LittleEndian.PutUint64(raw[8*k:], uint64(v))
	}
	require.NoError(t, s.CopyIn(mem, raw))
	var l cuda.List
	l.Add(f, [3]uint32{1, 1, 1}, [3]uint32{32, 1, 1}, 0)
	l.Addr(mem)
	require.NoError(t, s.Run(&l))
	require.NoError(t, s.CopyOut(raw, mem))
	require.NoError(t, s.Sync())
	out := make([]int, len(values))
	for k := range out {
		out[k] = int(binary.LittleEndian.Uint64(raw[8*k:]))
	}
	require.NoError(t, m.Unpin(raw))
	require.NoError(t, m.Free(mem))
	require.NoError(t, m.Close())
	return out
}

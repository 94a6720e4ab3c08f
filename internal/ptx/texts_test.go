package ptx

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/ptx/simt"
)

// counter counts launches in a variable of its module, whose second word begins at 100, and gives
// what it was; the first word stays 7.
const counter = `
.global .align 4 .u32 unused = 5;
.global .align 4 .u32 count[2] = {7, 100};
.const .align 4 .u32 by[2] = {1, 3};
.visible .entry k(.param .u64 to)
{
	.reg .b32 %r<5>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd0, [to];
	mov.u64 %rd1, by;
	ld.const.u32 %r1, [%rd1+4];
	mov.u64 %rd2, count+4;
	atom.global.add.u32 %r0, [%rd2], %r1;
	st.global.u32 [%rd0], %r0;
	ld.global.u32 %r2, [count];
	st.global.u32 [%rd0+4], %r2;
	ret;
}`

func TestMachinesThatShareTextsCompileEachOnceAndHaveVariablesOfTheirOwn(t *testing.T) {
	all := new(Texts)
	kernels := make([]*simt.Kernel, 4)
	var group sync.WaitGroup
	for n := range kernels {
		group.Go(func() {
			m := New(Config{Texts: all})
			_, err := m.Alloc(1 + 1000*n) // variables lie elsewhere on each
			require.NoError(t, err)
			s, err := m.Stream()
			require.NoError(t, err)
			mod, err := m.Load([]byte(whole(counter)))
			require.NoError(t, err)
			r := &rig{t, m, s, mod}
			at := up(r, []uint32{0, 0})
			for k := range n + 1 {
				require.NoError(t, r.launch("k", 1, 1, 0, at))
				require.Equal(t, []uint32{uint32(100 + 3*k), 7}, down[uint32](r, at, 2))
			}
			kernels[n] = mod.(*module).kernels["k"]
			require.NoError(t, m.Close())
		})
	}
	group.Wait()
	for _, k := range kernels[1:] {
		require.Same(t, &kernels[0].Code[0], &k.Code[0])
		require.NotEqual(t, kernels[0].Template, k.Template)
	}
}

func TestAMachineCountsTheTrafficOfATextThatOthersHave(t *testing.T) {
	all, text := new(Texts), texts(t)["basic"]
	x := normal(32*32, 1)
	run := func(c Config) *Machine {
		c.Texts = all
		r := newRig(t, c, text)
		px := up(r, x)
		require.NoError(t, r.launch3("matmul", [3]uint32{2, 2, 1}, [3]uint32{16, 16, 1}, 0, px, up(r, x), up(r, x), 32, 32, 32))
		return r.m
	}
	require.Empty(t, run(Config{}).Traffic())
	first, second := run(Config{Traffic: true}), run(Config{Traffic: true})
	require.Equal(t, int64(1), first.Traffic()["matmul"].Launches)
	require.Positive(t, first.Traffic()["matmul"].Loads.Requests)
	require.Equal(t, first.Traffic(), second.Traffic())
}

func TestATextIsRefusedByEveryMachineThatItIsNotFor(t *testing.T) {
	all, text := new(Texts), []byte(texts(t)["matrix80"])
	for range 2 {
		for _, arch := range []int{75, 80, 90} {
			_, err := New(Config{Arch: arch, Texts: all}).Load(text)
			if arch >= 80 {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, cuda.ErrImage)
			require.ErrorContains(t, err, "text for sm_80 on a machine of 75")
		}
	}
}

func TestTextsForgetWhatIsTooMuch(t *testing.T) {
	all := new(Texts)
	for _, c := range []struct{ bytes, kept int }{{10, 1}, {10, 1}, {20, 2}, {mostText - 30, 3}, {1, 1}, {mostText + 1, 1}, {2, 1}} {
		all.once(want{text: strings.Repeat("x", c.bytes)})
		require.Len(t, all.all, c.kept, "%d", c.bytes)
	}
}

// Kernels hold nothing that a run changes: a machine that ran one leaves it as it was.
func TestWhatIsSharedIsAsNewAfterARun(t *testing.T) {
	text, r := texts(t)["basic"], rand.New(rand.NewPCG(1, 9))
	x := make([]float32, 64*64)
	for k := range x {
		x[k] = r.Float32()
	}
	run := func(c Config, times int) (out []float32) {
		g := newRig(t, c, text)
		to := up(g, x)
		for range times {
			require.NoError(t, g.launch3("matmul", [3]uint32{4, 4, 1}, [3]uint32{16, 16, 1}, 0, up(g, x), up(g, x), to, 64, 64, 64))
			require.NoError(t, g.launch("softmax", 64, 64, 0, to, to, 64))
			out = down[float32](g, to, len(x))
		}
		return out
	}
	all := new(Texts)
	run(Config{Texts: all}, 3)
	require.Equal(t, run(Config{}, 1), run(Config{Texts: all}, 1))
}

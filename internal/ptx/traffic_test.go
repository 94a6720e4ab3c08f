package ptx

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/ptx/simt"
)

// trafficOf is what one warp asks for of a kernel, which is given 64 KiB, on a machine that counts.
func trafficOf(t *testing.T, body string) simt.Traffic {
	r := newRig(t, Config{Traffic: true}, `.version 7.8
.target sm_80
.address_size 64
.visible .entry k(.param .u64 at)
{
	.reg .b32 %r<20>;
	.reg .f32 %f<20>;
	.reg .b64 %rd<10>;
	.reg .pred %p<3>;
	.local .align 4 .b8 own[16];
	.shared .align 16 .b8 sm[8192];
	ld.param.u64 %rd0, [at];
	mov.u32 %r0, %tid.x;
	mov.u32 %r1, sm;
	mov.u32 %r2, 0;
`+body+`
	ret;
}`)
	at := up(r, make([]byte, 64<<10))
	f, err := r.mod.Func("k", 0)
	require.NoError(t, err)
	var l cuda.List
	l.Add(f, [3]uint32{1, 1, 1}, [3]uint32{32, 1, 1}, 0)
	l.Addr(at)
	require.NoError(t, r.s.Run(&l))
	require.NoError(t, r.s.Sync())
	return r.m.Traffic()["k"]
}

func TestEveryKindOfAccessIsCountedInItsMemory(t *testing.T) {
	step := func(bytes int) string { // %rd2 and %r3 are places so many bytes apart
		return fmt.Sprintf("mul.wide.u32 %%rd1, %%r0, %d; add.s64 %%rd2, %%rd0, %%rd1; mul.lo.u32 %%r3, %%r0, %d; add.u32 %%r3, %%r3, %%r1;", bytes, bytes)
	}
	sectors := func(requests, sectors, bytes int64) simt.Sectors {
		return simt.Sectors{Requests: requests, Sectors: sectors, Bytes: bytes}
	}
	wavefronts := func(least, taken int64) simt.Wavefronts {
		return simt.Wavefronts{Least: least, Taken: taken}
	}
	loads := func(n, of, bytes int64) simt.Traffic { return simt.Traffic{Loads: sectors(n, of, bytes)} }
	stores := func(n, of, bytes int64) simt.Traffic { return simt.Traffic{Stores: sectors(n, of, bytes)} }
	shared := func(least, taken int64) simt.Traffic { return simt.Traffic{Shared: wavefronts(least, taken)} }
	for body, want := range map[string]simt.Traffic{
		step(4) + "ld.global.f32 %f0, [%rd2];":                                                     loads(1, 4, 128),
		step(4) + "ld.global.f32 %f0, [%rd2+4];":                                                   loads(1, 5, 128),
		step(32) + "ld.global.f32 %f0, [%rd2];":                                                    loads(1, 32, 128),
		step(16) + "ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd2];":                                loads(1, 16, 512),
		"ld.global.u8 %r4, [%rd0];":                                                                loads(1, 1, 1),
		"setp.lt.u32 %p0, %r0, 3; " + step(4) + "@%p0 ld.global.u32 %r4, [%rd2];":                  loads(1, 1, 12),
		step(8) + "st.global.v2.u32 [%rd2], {%r0, %r0};":                                           stores(1, 8, 256),
		step(16) + "st.global.u32 [%rd2], %r0; st.global.u32 [%rd2+4], %r0;":                       stores(2, 32, 256),
		"red.global.add.u32 [%rd0], 1;":                                                            stores(1, 1, 4),
		step(4) + "ld.u32 %r4, [%rd2];":                                                            loads(1, 4, 128),
		step(4) + "st.shared.u32 [%r3], %r0;":                                                      shared(1, 1),
		step(8) + "st.shared.u32 [%r3], %r0;":                                                      shared(1, 2),
		step(128) + "st.shared.u32 [%r3], %r0;":                                                    shared(1, 32),
		step(132) + "st.shared.u32 [%r3], %r0;":                                                    shared(1, 1),
		step(16) + "st.shared.v4.u32 [%r3], {%r0, %r0, %r0, %r0};":                                 shared(4, 4),
		step(32) + "st.shared.v4.u32 [%r3], {%r0, %r0, %r0, %r0};":                                 shared(4, 8),
		step(4) + "cvt.u64.u32 %rd4, %r3; cvta.shared.u64 %rd3, %rd4; st.u32 [%rd3], %r0;":         shared(1, 1),
		step(64) + "atom.shared.add.u32 %r4, [%r3], 1;":                                            shared(1, 16),
		"st.local.u32 [own], %r0; ld.local.u32 %r4, [own];":                                        {Local: 256},
		step(16) + "cp.async.cg.shared.global [%r3], [%rd2], 16; cp.async.wait_all;":               {Loads: sectors(1, 16, 512), Shared: wavefronts(4, 4)},
		step(16) + "cp.async.ca.shared.global [%r3], [%rd2], 16, %r2; cp.async.wait_all;":          {Shared: wavefronts(4, 4)}, // of nothing: zeros
		step(16) + "st.shared.v4.u32 [%r3], {%r0, %r0, %r0, %r0}; bar.sync 0;" + matrices(16, 4):   shared(8, 8),
		step(128) + "st.shared.v4.u32 [%r3], {%r0, %r0, %r0, %r0}; bar.sync 0;" + matrices(128, 4): shared(8, 64),
		step(16) + "st.shared.v4.u32 [%r3], {%r0, %r0, %r0, %r0}; bar.sync 0;" + matrices(16, 1):   shared(5, 5),
		"mov.b32 %r5, 0; mov.f32 %f0, 0f00000000;" +
			"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0, %f1, %f2, %f3}, {%r5, %r5, %r5, %r5}, {%r5, %r5}, {%f0, %f0, %f0, %f0};": {Products: 1},
	} {
		got := trafficOf(t, body)
		require.Equal(t, int64(1), got.Launches)
		require.Positive(t, got.Steps)
		got.Launches, got.Steps = 0, 0
		require.Equal(t, want, got, body)
	}
}

// matrices loads n matrices, whose rows lie so many bytes apart.
func matrices(apart, n int) string {
	to := map[int]string{1: "x1.shared.b16 {%r10}", 4: "x4.shared.b16 {%r10, %r11, %r12, %r13}"}[n]
	return fmt.Sprintf("mul.lo.u32 %%r9, %%r0, %d; add.u32 %%r9, %%r9, %%r1; ldmatrix.sync.aligned.m8n8.%s, [%%r9];", apart, to)
}

func TestAMachineThatIsNotToldToCountsNothing(t *testing.T) {
	r := newRig(t, Config{}, nothing)
	require.Empty(t, r.m.Traffic())
}

// nothing is a kernel that does nothing.
const nothing = ".version 7.8\n.target sm_75\n.address_size 64\n.visible .entry nothing()\n{\n\tret;\n}"

package compile

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/ptx/simt"
	"github.com/weft-project/weft/internal/ptx/syntax"
)

// program writes a kernel at random: loops and branches within one another, over a few values that
// live for long and many that do not.
func program(r *rand.Rand) string {
	var b strings.Builder
	label, temp := 0, 0
	value := func() string { return fmt.Sprintf("%%v%d", r.IntN(6)) }
	line := func(format string, a ...any) { fmt.Fprintf(&b, "\t"+format+";\n", a...) }
	var body func(depth int)
	body = func(depth int) {
		for range 1 + r.IntN(5) {
			switch k := r.IntN(8); {
			case k < 3:
				line("mad.lo.u32 %s, %s, %s, %s", value(), value(), value(), value())
			case k == 3:
				line("setp.lt.u32 %%p1, %s, %s", value(), value())
				line("@%%p1 xor.b32 %s, %s, %s", value(), value(), value())
			case k == 4: // values of the moment
				line("add.u32 %%t%d, %s, %s", temp, value(), value())
				line("shr.u32 %%t%d, %%t%d, %d", temp+1, temp, r.IntN(9))
				line("sub.u32 %s, %%t%d, %%t%d", value(), temp+1, temp)
				temp += 2
			case depth == 0:
			case k == 5:
				label++
				at := label
				line("and.b32 %%t%d, %s, %d", temp, value(), 1+r.IntN(3))
				line("setp.eq.u32 %%p2, %%t%d, 0", temp)
				temp++
				line("@%%p2 bra L%d", at)
				body(depth - 1)
				if r.IntN(2) == 0 {
					line("bra M%d", at)
					fmt.Fprintf(&b, "L%d:\n", at)
					body(depth - 1)
					fmt.Fprintf(&b, "M%d:\n", at)
				} else {
					fmt.Fprintf(&b, "L%d:\n", at)
				}
			case k == 6:
				label++
				at := label
				line("mov.u32 %%c%d, %d", at, r.IntN(4))
				line("and.b32 %%t%d, %s, 3", temp, value())
				line("add.u32 %%c%d, %%c%d, %%t%d", at, at, temp)
				carried := temp + 1 // lives around the loop, but is seen at its beginning alone
				line("mov.u32 %%t%d, %s", carried, value())
				temp += 2
				fmt.Fprintf(&b, "L%d:\n", at)
				line("add.u32 %%t%d, %%t%d, 77", carried, carried)
				line("xor.b32 %s, %s, %%t%d", value(), value(), carried)
				body(depth - 1)
				line("sub.u32 %%c%d, %%c%d, 1", at, at)
				line("setp.gt.s32 %%p3, %%c%d, 0", at)
				line("@%%p3 bra L%d", at)
			}
		}
	}
	body(3)
	var out strings.Builder
	out.WriteString(".version 7.8\n.target sm_75\n.visible .entry k(.param .u64 out)\n{\n\t.reg .b32 %v<6>, %t<100000>, %c<100000>;\n\t.reg .pred %p<9>;\n\t.reg .b64 %a<4>;\n")
	out.WriteString("\tmov.u32 %v0, %tid.x;\n")
	for k := 1; k < 6; k++ {
		fmt.Fprintf(&out, "\tmul.lo.u32 %%v%d, %%v%d, %d;\n", k, k-1, 2654435761)
	}
	out.WriteString(b.String())
	out.WriteString("\tld.param.u64 %a0, [out];\n\tmov.u32 %t0, %tid.x;\n\tmul.wide.u32 %a1, %t0, 24;\n\tadd.u64 %a0, %a0, %a1;\n")
	for k := range 6 {
		fmt.Fprintf(&out, "\tst.global.u32 [%%a0+%d], %%v%d;\n", 4*k, k)
	}
	out.WriteString("\tret;\n}\n")
	return out.String()
}

// ran is what a warp writes that runs a kernel, which is given room for so many bytes.
func ran(t *testing.T, k *simt.Kernel, bytes int) []byte {
	p := &simt.Processor{Memory: simt.Memory{Limit: bytes}, Limit: 1e5}
	out, err := p.Memory.Alloc(bytes)
	require.NoError(t, err)
	r := simt.Runner{Kernel: k}
	err = r.Run(p, simt.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}, Params: binary.LittleEndian.AppendUint64(nil, out.Base)})
	require.NoError(t, err)
	return out.Mem
}

func TestRegistersThatShareAPlaceHoldWhatTheyWould(t *testing.T) {
	saved := 0
	for seed := range uint64(150) {
		text := program(rand.New(rand.NewPCG(seed, 3)))
		src, err := syntax.Parse(text)
		require.NoError(t, err)
		shared, err := Kernel(src, src.Funcs["k"], false)
		require.NoError(t, err)
		c := &compiler{src: src}
		require.NoError(t, c.entry(src.Funcs["k"])) // every register in a place of its own
		saved += len(c.k.Template) - len(shared.Template)
		require.Equal(t, ran(t, c.k, 6*32*4), ran(t, shared, 6*32*4), text)
	}
	require.Positive(t, saved)
}

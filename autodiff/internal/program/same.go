package program

import (
	"fmt"
	"strconv"

	"github.com/weft-project/weft/kernels"
)

// same makes one of instructions that are equal in type, parameters and operands. The key of the
// map is all of that, so that what it finds is equal. The operands of a sum or a product may stand
// either way round: the result has the same bits.
func same(u *Unit) bool {
	seen := make(map[string][]Value, len(u.Insts))
	var key []byte
	return u.rewrite(func(r *rewriting, i Inst) (Value, bool) {
		key = fmt.Appendf(key[:0], "%T %v", i.Instr, i.Instr)
		in := i.In
		if b, ok := i.Instr.(kernels.Binary); ok && (b.Fn == kernels.Add || b.Fn == kernels.Mul) && in[0] > in[1] {
			in = []Value{in[1], in[0]}
		}
		for _, v := range in {
			key = strconv.AppendInt(append(key, ' '), int64(v), 10)
		}
		have, ok := seen[string(key)]
		if !ok {
			seen[string(key)] = i.Out
			return 0, false
		}
		for k, v := range i.Out {
			r.now[v] = have[k]
		}
		return have[0], true
	})
}

package program

import "github.com/weft-project/weft/kernels"

// maxRounds bounds how often the simple passes are repeated: what one of them does can give another
// something to do.
const maxRounds = 4

// Optimize rewrites a valid unit into one that computes the same in less time and memory. It takes
// time in proportion to the unit's size.
func Optimize(u *Unit) {
	dead(u)
	for range maxRounds {
		changed := fold(u)
		changed = layout(u) || changed
		changed = same(u) || changed
		dead(u)
		if !changed {
			break
		}
	}
	fuse(u)
	view(u)
	fills(u)
	dead(u)
	order(u)
}

// fills makes a Fill of a constant that is repeated, where a whole tensor of it is wanted after
// all.
func fills(u *Unit) bool {
	return u.rewrite(func(r *rewriting, i Inst) (Value, bool) {
		if to, ok := i.Instr.(kernels.BroadcastTo); ok {
			if of, _, ok := from[kernels.Fill](r, i.In[0]); ok {
				return r.apply(kernels.Fill{Type: kernels.Type{Dtype: of.Type.Dtype, Shape: to.Shape}, C: of.C})
			}
		}
		return 0, false
	})
}

package program

// order lets instructions wait that only take memory, until somebody reads what they make: what is computed again for a backward, for
// instance. The others stay in the order in which they are.
func order(u *Unit) {
	o := ordering{Unit: u, of: make([]Value, len(u.Types)), first: make([]int, len(u.Types)), last: make([]int, len(u.Types)), fixed: make([]bool, len(u.Types))}
	o.lifetimes()
	before := make([][]Inst, len(u.Insts)+1) // by instruction that stays: those that have waited for it
	for k := len(u.Insts) - 1; k >= 0; k-- {
		at := k
		if o.waits(k) {
			at = len(u.Insts)
			for _, v := range u.Insts[k].Out {
				at = min(at, o.first[v])
			}
		}
		before[at] = append(before[at], u.Insts[k]) // the latest first
		for _, v := range u.Insts[k].In {
			o.first[v] = min(o.first[v], at)
		}
	}
	insts := make([]Inst, 0, len(u.Insts))
	for _, some := range before {
		for k := len(some) - 1; k >= 0; k-- {
			insts = append(insts, some[k])
		}
	}
	u.Insts = insts
}

type ordering struct {
	*Unit
	of    []Value // by value: where it lies, which is elsewhere for a reshape
	first []int   // by value: the place of its first reader so far, in the new order
	last  []int   // by value that others lie in: the last reader of any of them
	fixed []bool  // by value that others lie in: it is given or a result, and has memory of its own
}

func (o *ordering) lifetimes() {
	for v := range o.of {
		o.of[v], o.first[v], o.last[v] = Value(v), len(o.Insts), -1
	}
	for k, i := range o.Insts {
		if alias(i) {
			o.of[i.Out[0]] = o.of[i.In[0]]
			continue
		}
		for _, v := range i.In {
			o.last[o.of[v]] = k
		}
	}
	for _, v := range o.Given {
		o.fixed[v] = true
	}
	for _, v := range o.Results {
		o.fixed[o.of[v]] = true
	}
}

// waits says whether an instruction makes more than what it is the last to read.
func (o *ordering) waits(k int) bool {
	i := o.Insts[k]
	if alias(i) {
		return true
	}
	grows := 0
	for _, v := range i.Out {
		if !o.fixed[v] {
			grows += o.Types[v].Bytes()
		}
	}
	for n, v := range i.In {
		v = o.of[v]
		if o.last[v] == k && !o.fixed[v] && !o.readBefore(i.In[:n], v) {
			grows -= o.Types[v].Bytes()
		}
	}
	return grows > 0
}

func (o *ordering) readBefore(vs []Value, v Value) bool {
	for _, w := range vs {
		if o.of[w] == v {
			return true
		}
	}
	return false
}

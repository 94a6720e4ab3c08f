package gen

// parts writes nests without folds as one kernel, in which each has blocks of its own.
func (w *writer) parts(nests ...*nest) {
	const most = 64 // parts of a kernel: beyond that its text grows out of hand
	for len(nests) > most {
		w.parts(nests[:most]...)
		nests = nests[most:]
	}
	e, blocks, threads := &emitter{}, 0, 32
	var units []int
	for _, n := range nests {
		w.shape(n)
		units = append(units, product(n.dims))
		switch most := units[len(units)-1]; {
		case most >= 1<<17:
			threads = 256
		case most > 32:
			threads = max(threads, 128)
		}
	}
	done := e.label()
	for k, n := range nests {
		if units[k] == 0 {
			continue
		}
		unroll := n.unroll(w.large || units[k] >= 1<<18)
		mine, next := (units[k]+threads*unroll-1)/(threads*unroll), ""
		if len(nests) > 1 {
			next = e.label()
			e.line("@%s bra %s;", e.op("setp.ge.u32", e.op("mov.u32", "%ctaid.x"), num(blocks+mine)), next)
		}
		n.each(e, units[k], blocks, threads, unroll)
		if blocks += mine; next != "" {
			e.line("bra %s;", done)
			e.here(next)
		}
	}
	if blocks == 0 {
		return
	}
	e.here(done)
	w.endKernel(e, blocks, 1, threads)
}

// unroll is how many groups of lanes a thread takes: more where there are many and little to
// compute, so that loads are under way together.
func (n *nest) unroll(large bool) int {
	if !large || n.heavy > 60 || n.lanes > 1 && n.heavy > 30 || n.lanes*len(n.ins) > 16 {
		return 1
	}
	if n.lanes == 1 {
		return 4
	}
	return 2
}

// each writes the elements of blocks that begin with block first.
func (n *nest) each(e *emitter, units, first, threads, unroll int) {
	x := index{e, n.wide}
	block := x.special("%ctaid.x")
	if first > 0 {
		block = x.do("sub", block, num(first))
	}
	at := x.scaled(block, threads*unroll, x.special("%tid.x"))
	constants := n.constants(e)
	var strips []*strip
	for u := range unroll {
		flat, p := at, ""
		if u > 0 {
			flat = x.do("add", at, num(u*threads))
		}
		if units%(threads*unroll) != 0 {
			p = e.op("setp.lt."+x.typ(), flat, num(units))
		}
		pos := x.walk(flat, n.dims)
		strips = append(strips, n.strip(e, p, x.at(pos, n.ins), x.at(pos, n.outs), constants))
	}
	for _, s := range strips {
		s.compute(e)
	}
}

// at is where accesses lie at a position.
func (x index) at(pos *walk, as []access) []string {
	out := make([]string, len(as))
	for k, a := range as {
		out[k] = x.address(x.global(a.at), pos.offset(a.st), a.dtype.Size())
	}
	return out
}

package gen

import (
	"github.com/weft-project/weft/device"
)

// rows folds along the last axis: a few threads of a warp, a warp, or a block has a result.
func (f *folder) rows() {
	e, x := f.e, f.x
	group := min(32, ceil(f.folded))
	if f.folded > 32*foldEach && (f.kept < foldBlocks || f.folded > foldThreads*foldEach) {
		group = foldThreads
	}
	threads := max(group, min(foldThreads, max(32, ceil(f.kept)*group)))
	rows := threads / group // of a block
	blocks := (f.kept + rows - 1) / rows
	f.cut(blocks, group)
	lane, row := x.special("%tid.x"), x.special("%ctaid.x")
	if rows > 1 {
		tid := lane
		lane = x.bit("and", tid, num(group-1))
		row = x.scaled(row, rows, x.over(tid, group))
	}
	valid := ""
	if f.kept%rows != 0 {
		valid = e.op("setp.lt."+x.typ(), row, num(f.kept))
	}
	kept := x.walk(row, f.keptDims)
	acc := f.zeroSums(1)
	f.loop(kept, lane, group, valid, acc)
	for k := range acc {
		f.warp(k, acc[k], min(group, 32))
	}
	if group > 32 {
		f.block(acc, lane)
	}
	first := e.op("setp.eq."+x.typ(), lane, "0")
	if valid != "" {
		first = e.op("and.pred", first, valid)
	}
	for k := range acc {
		f.finish(k, kept, first, acc[k], true)
	}
	f.w.endKernel(e, blocks, f.parts, threads)
}

// warp folds a sum over so many neighbouring threads; all come to have it.
func (f *folder) warp(k int, sum []string, threads int) {
	g := f.n.folds[k]
	for d := threads / 2; d > 0; d /= 2 {
		sum[0] = g.join(f.e, sum[0], f.shuffle(g.acc, sum[0], d))
	}
}

// shuffle is what the thread has whose number differs in bit d.
func (f *folder) shuffle(d device.Dtype, v string, bit int) string {
	e := f.e
	swap := func(v string) string {
		return e.op("shfl.sync.bfly.b32", v, num(bit), "31", "0xffffffff")
	}
	if d.Size() == 4 {
		return e.op("mov."+holds(d), swap(e.op("mov.b32", v)))
	}
	lo, hi := e.reg("b32"), e.reg("b32")
	e.line("mov.b64 {%s, %s}, %s;", lo, hi, v)
	r := e.reg(holds(d))
	e.line("mov.b64 %s, {%s, %s};", r, swap(lo), swap(hi))
	return r
}

// block folds the sums of a block's warps, for its first thread.
func (f *folder) block(acc [][]string, tid string) {
	const warps = foldThreads / 32
	e, x := f.e, f.x
	e.shared = max(e.shared, 8*warps*len(acc))
	sm := e.op("mov.u32", "sm")
	lead := e.op("setp.eq."+x.typ(), x.bit("and", tid, "31"), "0")
	slot := e.op("add.u32", sm, e.op("shl.b32", e.op("shr.u32", e.op("mov.u32", "%tid.x"), "5"), "3"))
	for k := range acc {
		e.line("@%s st.shared.%s [%s], %s;", lead, holds(f.n.folds[k].acc), offset(slot, 8*warps*k), acc[k][0])
	}
	e.line("bar.sync 0;")
	for k := range acc {
		g := f.n.folds[k]
		parts := make([]string, warps)
		for n := range parts {
			parts[n] = e.op("ld.shared."+holds(g.acc), "["+offset(sm, 8*(warps*k+n))+"]")
		}
		for len(parts) > 1 {
			for n := range len(parts) / 2 {
				parts[n] = g.join(e, parts[2*n], parts[2*n+1])
			}
			parts = parts[:len(parts)/2]
		}
		acc[k] = parts
	}
}

// columns folds along other axes than the last: neighbouring threads have neighbouring results, and
// several share each.
func (f *folder) columns() {
	e, x := f.e, f.x
	across, down := f.shape()
	blocks := (f.kept + across - 1) / across
	f.cut(blocks, down)
	tid := x.special("%tid.x")
	col := x.scaled(x.special("%ctaid.x"), across, x.bit("and", tid, num(across-1)))
	valid := ""
	if f.kept%across != 0 {
		valid = e.op("setp.lt."+x.typ(), col, num(f.kept))
	}
	kept, line := x.walk(col, f.keptDims), x.over(tid, across)
	acc := f.zeroSums(f.n.lanes)
	f.loop(kept, line, down, valid, acc)
	e.shared = across * down * f.n.lanes * 8
	if down == 1 {
		e.shared = 0
	}
	first := valid
	if down > 1 {
		first = e.op("setp.eq."+x.typ(), line, "0")
		if valid != "" {
			first = e.op("and.pred", first, valid)
		}
	}
	for k := range acc {
		f.tree(k, acc[k], across, down)
		f.finish(k, kept, first, acc[k], false)
	}
	f.w.endKernel(e, blocks, f.parts, across*down)
}

// shape is how many columns a block has, and how many threads share each. Where there is little to
// do, blocks are narrow, so that there are many, but read whole sectors of memory.
func (f *folder) shape() (across, down int) {
	across = min(32, ceil(f.kept))
	down = min(foldThreads/across, ceil(f.folded))
	across = min(foldThreads/down, ceil(f.kept))
	for f.kept*f.folded <= 1<<18 && across*f.n.lanes > 8 && f.kept/across < 128 && down < ceil(f.folded) {
		across, down = across/2, down*2
	}
	return across, max(down, 32/across)
}

// tree folds the sums of threads of one column, in shared memory; the first line comes to have
// them.
func (f *folder) tree(k int, sums []string, across, down int) {
	if down == 1 {
		return
	}
	e, g := f.e, f.n.folds[k]
	tid, size := e.op("mov.u32", "%tid.x"), g.acc.Size()
	plane := size * down * across // lane by lane: neighbouring threads are in neighbouring banks
	mine := e.op("add.u32", e.op("mov.u32", "sm"), e.op("mul.lo.u32", tid, num(size)))
	store := func(p string) {
		for l, s := range sums {
			e.line("%sst.shared.%s [%s], %s;", guard(p), holds(g.acc), offset(mine, l*plane), s)
		}
	}
	if k > 0 {
		e.line("bar.sync 0;") // the fold before is read
	}
	store("")
	for d := down / 2; d > 0; d /= 2 {
		e.line("bar.sync 0;")
		p := e.op("setp.lt.u32", tid, num(d*across))
		for l, s := range sums {
			other := e.op("mov."+holds(g.acc), g.init)
			e.line("@%s ld.shared.%s %s, [%s];", p, holds(g.acc), other, offset(mine, size*d*across+l*plane))
			sums[l] = g.join(e, s, other)
		}
		if d > 1 {
			store(p)
		}
	}
}

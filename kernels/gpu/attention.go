package gpu

import (
	"fmt"
	"math"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// attention is what both directions of attention share.
type attention struct {
	*backend
	*code
	of               kernels.Attention
	dtype            device.Dtype
	b, t, s, h, n, d int        // n: heads of keys
	units            bool       // for products of bfloat16
	in               []headRows // operands (b, t, h, d); the logarithms have an address only
	more             []arg      // attention_more.cuh's More; none where nobody asks for it
	out              []kernels.Type
}

// shape is how the blocks of a kernel share the work: rows of a block, columns of a result,
// threads, and dynamic shared memory.
type shape struct{ tall, wide, threads, bytes int }

// attending is one launch that makes a result, in blocks of a shape.
type attending struct {
	*launch
	shape
}

// headRows is where the rows of an operand or result lie, in elements from its address:
// common.cuh's Rows.
type headRows struct {
	at               arg
	batch, head, row int
}

// seenThrough is where rows lie of what is at an address, of type t, seen through a view.
func seenThrough(at arg, t kernels.Type, v *kernels.View) headRows {
	r := headRows{at: at.plus(uint64(v.Offset * t.Dtype.Size()))}
	if len(v.Shape) == 4 {
		r.batch, r.row, r.head = v.Strides[0], v.Strides[1], v.Strides[2]
	}
	return r
}

// by16 says whether rows of elements of a dtype can be accessed by 16 bytes, and are near enough to
// each other for attention_tiles.cuh.
func (r headRows) by16(d device.Dtype) bool {
	return r.at.value%16 == 0 && (r.batch|r.head|r.row)%(16/d.Size()) == 0 && r.row < 1<<24
}

// lowerAttention is lower for attention and its gradient, which read operands through views, nil
// for those that are as they are.
func (b *backend) lowerAttention(i kernels.Instr, in, out []kernels.Type, views []*kernels.View) (*code, error) {
	grad, isGrad := i.(kernels.AttentionGrad)
	of, first := grad.Of(), headOperands(i)
	if !isGrad {
		of = i.(kernels.Attention)
	}
	q, k := kernels.ViewOf(in, views, 0).Shape, kernels.ViewOf(in, views, 1).Shape
	a := &attention{backend: b, code: &code{}, of: of, dtype: kernels.Widened(in[:1])[0].Dtype, out: out}
	a.b, a.t, a.s, a.h, a.n, a.d = q[0], q[1], k[1], q[2], k[2], q[3]
	if err := a.choose(kernels.IsNarrow(in[0])); err != nil {
		return nil, err
	}
	if most := math.MaxInt32 - 256; max(a.t, a.s, a.d) > most || a.shape("grad_kv").blocks(a.b, a.h, max(a.t, a.s), a.d) > most {
		return nil, fmt.Errorf("%w: attention over more than %d rows", kernels.ErrOperands, most)
	}
	for k, t := range in[:first] {
		if err := a.layOut(k, t, kernels.ViewOf(in, views, k)); err != nil {
			return nil, err
		}
	}
	a.beside(first, in, views)
	if !isGrad {
		return a.code, a.forward()
	}
	return a.code, a.backward(grad.Joined)
}

// layOut says where operand k lies, having it laid out first where that is needed: of rows,
// elements must follow each other, of logarithms all. The units read bfloat16, by 16 bytes.
func (a *attention) layOut(k int, t kernels.Type, v *kernels.View) error {
	at, last, as := inArg(k), len(v.Shape)-1, t.Dtype
	if a.units && k != logarithms {
		as = device.BFloat16
	}
	lies := v.Shape[last] <= 1 || v.Strides[last] == 1
	if last < 3 {
		lies = v.Equal(kernels.Whole(v.Shape))
	}
	if as == device.BFloat16 {
		lies = lies && t.Dtype == as && seenThrough(at, t, v).by16(as)
	}
	if !lies {
		to := kernels.Type{Dtype: as, Shape: v.Shape}
		move := kernels.Viewed{Of: kernels.BroadcastTo{Shape: v.Shape}, In: []*kernels.View{v}}
		copied, err := a.generate(stored(move, []kernels.Type{t}, []kernels.Type{to}), []kernels.Type{t})
		if err != nil {
			return err
		}
		at = scratchArg(a.temp(to.Bytes()))
		a.inline(copied, []arg{at}, []arg{inArg(k)})
		t, v = to, kernels.Whole(v.Shape)
	}
	a.in = append(a.in, seenThrough(at, t, v))
	return nil
}

// beside makes the arguments for a mask and a key, which are the operands from one on.
func (a *attention) beside(k int, in []kernels.Type, views []*kernels.View) {
	if !a.of.Masked && a.of.Drop == 0 {
		return
	}
	var mask, strides, key = arg{}, [4]int{}, arg{}
	if a.of.Masked {
		v := kernels.ViewOf(in, views, k)
		mask = inArg(k).plus(uint64(v.Offset * in[k].Dtype.Size()))
		for n, e := range v.Shape {
			if e != 1 {
				strides[n] = v.Strides[n]
			}
		}
		k++
	}
	if a.of.Drop != 0 {
		key = inArg(k)
	}
	l := (&launch{}).arg(mask)
	for _, n := range strides {
		l.u64(uint64(n))
	}
	a.more = l.arg(key).u64(threshold(1-a.of.Drop)).float(device.Float64, 1/(1-a.of.Drop)).args
}

// result is where n rows of each of some heads of result k lie, without gaps.
func (a *attention) result(k, n, heads int) headRows {
	return headRows{outArg(k), n * heads * a.d, a.d, heads * a.d}
}

func (a *attention) forward() error {
	if done, err := a.byFours(); done || err != nil {
		return err
	}
	l, err := a.attend("", a.t, a.h)
	if err != nil || a.t == 0 {
		return err
	}
	l.rows(a.result(0, a.t, a.h)).out(1).rows(a.in[:3]...)
	a.extents(l, 0)
	return nil
}

// backward computes the gradient of queries, and then of keys and values, which reads the products
// of results and their gradients.
func (a *attention) backward(joined bool) error {
	to := [3]headRows{a.result(0, a.t, a.h), a.result(1, a.s, a.n), a.result(2, a.s, a.n)}
	if joined {
		wide, size, offset := (a.h+2*a.n)*a.d, a.dtype.Size(), 0
		if a.rounds(0) {
			size = device.BFloat16.Size()
		}
		for k, heads := range [3]int{a.h, a.n, a.n} {
			to[k] = headRows{outArg(0).plus(uint64(offset * size)), a.t * wide, a.d, wide}
			offset += heads * a.d
		}
	}
	products := scratchArg(a.temp(a.b * a.h * a.t * a.dtype.Size()))
	l, err := a.attend("grad_q", a.t, a.h)
	if err != nil {
		return err
	}
	l.rows(to[0]).arg(products).rows(a.in[:4]...).arg(a.in[logarithms].at).rows(a.in[5])
	a.extents(l, to[0].at.index)
	if l, err = a.attend("grad_kv", a.s, a.n); err != nil {
		return err
	}
	l.rows(to[1:]...).rows(a.in[:3]...).arg(a.in[logarithms].at).arg(products).rows(a.in[5])
	a.extents(l, to[1].at.index, to[2].at.index)
	return nil
}

// choose takes the units for products of bfloat16 where they may be used. Operands that lie as
// bfloat16 have no other kernels: readsNarrow says so before.
func (a *attention) choose(narrow bool) error {
	a.units = a.narrows(a.dtype) && hasUnits(a.d)
	if !a.units && narrow {
		return fmt.Errorf("%w: attention over bfloat16 that lies so", kernels.ErrNoBackend)
	}
	if a.cfg.Precision >= BF16 && a.dtype == device.Float32 && !a.units {
		why := whyExtent
		if !a.roundsInKernels() {
			why = whyNoCores
		}
		a.tally.add(workAttention, byFloat32, why, nil)
	}
	return nil
}

// hasUnits says whether attention_b.cuh has kernels for heads of an extent.
func hasUnits(d int) bool { return d > 0 && d <= 256 && d%8 == 0 }

// extent is that of heads for which there are kernels that have it, or more.
func (a *attention) extent() int {
	for _, most := range []int{64, 96, 128} {
		if a.d <= most {
			return most
		}
	}
	return 256
}

// shape is that of a kernel: of attention itself, which has no name, or of its gradients.
func (a *attention) shape(name string) shape {
	if a.units {
		return unitShape(a.extent(), name, len(a.more) > 0)
	}
	size, tile := a.dtype.Size(), 64
	if a.dtype == device.Float64 {
		tile = 32
	}
	return shape{tile, tile, tile * tile / 16, 3 * tile * (tile + 16/size) * size}
}

// unitShape is what attention_b64.cu and its like say of their kernels.
func unitShape(extent int, name string, more bool) shape {
	const tall, align, numbers = 128, 512, 512
	type tile struct {
		wide, rows, threads int
		held                bool // a block's rows are in registers, and their shared memory is free again
	}
	t := map[string]map[int]tile{
		"":        {64: {64, 64, 128, true}, 96: {96, 32, 128, true}, 128: {128, 32, 128, false}, 256: {256, 16, 256, true}},
		"grad_q":  {64: {64, 32, 128, true}, 96: {96, 32, 256, true}, 128: {128, 32, 256, true}, 256: {128, 16, 256, true}},
		"grad_kv": {64: {64, 16, 128, false}, 96: {96, 16, 256, false}, 128: {128, 16, 256, false}, 256: {64, 16, 256, false}},
	}[name][extent]
	if name == "grad_kv" && extent == 64 && more {
		t = tile{64, 32, 256, true}
	}
	room := 64 // elements of a row in shared memory
	for room < extent {
		room *= 2
	}
	tiles, own := 4*t.rows*room*2+numbers, tall*room*2
	if t.held {
		return shape{tall, t.wide, t.threads, align + max(tiles, own)}
	}
	return shape{tall, t.wide, t.threads, align + tiles + own}
}

// rounds says whether result k is bfloat16.
func (a *attention) rounds(k int) bool { return k < len(a.out) && kernels.IsNarrow(a.out[k]) }

// slices is how many blocks share the columns of a result of heads of an extent.
func (s shape) slices(d int) int { return max(1, (d+s.wide-1)/s.wide) }

// blocks is how many make so many rows of each head.
func (s shape) blocks(b, heads, rows, d int) int {
	tiles := (rows + s.tall - 1) / s.tall
	if b == 0 || heads == 0 || tiles == 0 {
		return 0
	}
	if s.slices(d) > math.MaxInt32/b/heads/tiles {
		return math.MaxInt
	}
	return b * heads * tiles * s.slices(d)
}

// attend begins the launch of a kernel whose blocks make so many rows of some heads of a result.
func (a *attention) attend(name string, rows, heads int) (attending, error) {
	s, module, full := a.shape(name), "attention", "attention"
	if name != "" {
		full += "_" + name
	}
	if len(a.more) > 0 {
		full += "_more"
	}
	if a.units {
		module = fmt.Sprint("attention_b", a.extent())
		full += fmt.Sprint("_b_", a.extent())
	} else {
		full = typed(full, a.dtype)
	}
	f, err := a.kernel(module, full, s.bytes)
	if err != nil {
		return attending{}, err
	}
	return attending{a.call(f, s.blocks(a.b, heads, rows, a.d), s.threads).dynamic(s.bytes), s}, nil
}

// extents adds common.cuh's Heads, of results of a launch which of them the units are to round, and
// More.
func (a *attention) extents(l attending, results ...int) {
	scale := 1.0
	if a.d > 0 {
		scale = 1 / math.Sqrt(float64(a.d))
	}
	share := max(1, a.h/max(1, a.n))
	l.float(a.dtype, scale).u32(a.t).u32(a.s).u32(a.d).u32(a.h).u32(share).flag(a.of.Causal).u32(l.slices(a.d)).u32((a.s + 3) / 4)
	for _, k := range results {
		if a.units {
			l.flag(a.rounds(k))
		}
	}
	for _, x := range a.more {
		l.arg(x)
	}
}

// rows adds arguments that are common.cuh's Rows.
func (l *launch) rows(all ...headRows) *launch {
	for _, r := range all {
		l.arg(r.at).u64(uint64(r.batch)).u64(uint64(r.head)).u64(uint64(r.row))
	}
	return l
}

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
	dtype         device.Dtype
	b, t, s, h, d int
	causal        bool
	in            []headRows // operands (b, t, h, d); the logarithms have an address only
	lie, out      []kernels.Type
	with          attentionKernels
}

// attentionKernels is how blocks share the work, and where the kernels that do so are found.
type attentionKernels struct {
	module, suffix               string
	narrow                       bool // they read bfloat16, and are told which results are
	tile, slices, threads, bytes int  // rows of a block; blocks that share the columns; a block's threads and dynamic shared memory
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
// each other for attention_bf16.cuh.
func (r headRows) by16(d device.Dtype) bool {
	return r.at.value%16 == 0 && (r.batch|r.head|r.row)%(16/d.Size()) == 0 && r.row < 1<<24
}

// lowerAttention is lower for attention and its gradient, which read operands through views, nil
// for those that are as they are.
func (b *backend) lowerAttention(i kernels.Instr, in, out []kernels.Type, views []*kernels.View) (*code, error) {
	a := &attention{backend: b, code: &code{}, dtype: kernels.Widened(in[:1])[0].Dtype, lie: in, out: out}
	for k, t := range in {
		v := kernels.ViewOf(in, views, k)
		if err := a.layOut(k, t, v); err != nil {
			return nil, err
		}
		switch k {
		case 0:
			a.b, a.t, a.h, a.d = v.Shape[0], v.Shape[1], v.Shape[2], v.Shape[3]
		case 1:
			a.s = v.Shape[1]
		}
	}
	if err := a.choose(); err != nil {
		return nil, err
	}
	if most := math.MaxInt32 - 256; max(a.t, a.s, a.d) > most || a.blocks(max(a.t, a.s)) > most {
		return nil, fmt.Errorf("%w: attention over more than %d rows", kernels.ErrOperands, most)
	}
	switch i := i.(type) {
	case kernels.Attention:
		a.causal = i.Causal
		return a.code, a.forward()
	case kernels.AttentionGrad:
		a.causal = i.Causal
		return a.code, a.backward(i.Joined)
	}
	return nil, unknown(i)
}

// layOut says where operand k lies, having it laid out first where that is needed: of rows,
// elements must follow each other, of logarithms all.
func (a *attention) layOut(k int, t kernels.Type, v *kernels.View) error {
	whole := kernels.Whole(v.Shape)
	at := inArg(k)
	if last := len(v.Shape) - 1; last == 3 && v.Shape[3] > 1 && v.Strides[3] != 1 || last < 3 && !v.Equal(whole) {
		move := kernels.Viewed{Of: kernels.BroadcastTo{Shape: v.Shape}, In: []*kernels.View{v}}
		copied, err := a.generate(move, []kernels.Type{t})
		if err != nil {
			return err
		}
		to := kernels.Type{Dtype: t.Dtype, Shape: v.Shape}
		at = scratchArg(a.temp(to.Bytes()))
		a.inline(copied, []arg{at}, []arg{inArg(k)})
		v = whole
	}
	a.in = append(a.in, seenThrough(at, t, v))
	return nil
}

// result is where n rows of each head of result k lie, without gaps.
func (a *attention) result(k, n int) headRows {
	return headRows{outArg(k), n * a.h * a.d, a.d, a.h * a.d}
}

func (a *attention) forward() error {
	l, err := a.attend("attention", a.t)
	if err != nil || a.t == 0 {
		return err
	}
	l.rows(a.result(0, a.t)).out(1).rows(a.in[:3]...)
	a.extents(l).rounds(a, 0)
	return nil
}

// backward computes the gradient of queries, and then of keys and values, which reads the products
// of results and their gradients.
func (a *attention) backward(joined bool) error {
	to := [3]headRows{a.result(0, a.t), a.result(1, a.s), a.result(2, a.s)}
	if joined {
		wide := a.h * a.d
		for k := range to {
			to[k] = headRows{outArg(0).plus(uint64(k * wide * a.size(0))), 3 * a.t * wide, a.d, 3 * wide}
		}
	}
	products := scratchArg(a.temp(a.b * a.h * a.t * a.dtype.Size()))
	l, err := a.attend("attention_grad_q", a.t)
	if err != nil {
		return err
	}
	l.rows(to[0]).arg(products).rows(a.in[:4]...).arg(a.in[4].at).rows(a.in[5])
	a.extents(l).rounds(a, to[0].at.index)
	if l, err = a.attend("attention_grad_kv", a.s); err != nil {
		return err
	}
	l.rows(to[1:]...).rows(a.in[:3]...).arg(a.in[4].at).arg(products).rows(a.in[5])
	a.extents(l).rounds(a, to[1].at.index).rounds(a, to[2].at.index)
	return nil
}

// choose takes the units for products of bfloat16 where there are such, and they may be used:
// attention_bf16.cuh says for which heads. Operands that lie as bfloat16 have no other kernels:
// readsNarrow says so before.
func (a *attention) choose() error {
	size, tile := a.dtype.Size(), 64
	if a.dtype == device.Float64 {
		tile = 32
	}
	a.with = attentionKernels{"attention", "_" + suffix(a.dtype), false, tile, max(1, (a.d+tile-1)/tile), tile * tile / 16, 3 * tile * (tile + 16/size) * size}
	narrow := kernels.IsNarrow(a.lie[0])
	units := a.narrows(a.dtype) && hasUnits(a.d)
	for k, r := range a.in {
		units = units && r.by16(a.lie[k].Dtype)
	}
	if !units && narrow {
		return fmt.Errorf("%w: attention over bfloat16 that lies so", kernels.ErrNoBackend)
	}
	if !units {
		return nil
	}
	most := "64"
	if a.d > 64 {
		most = "128"
	}
	a.with = attentionKernels{"attention_bf16", "_bf16_" + most, narrow, 128, 1, 256, 34 << 10}
	if narrow {
		end := lying(a.lie[0])
		if len(a.lie) > 3 {
			end = lying(a.lie[0], a.lie[5])
		}
		a.with.module, a.with.suffix = "attention_b"+most, end+"_"+most
	}
	return nil
}

// hasUnits says whether attention_bf16.cuh has kernels for heads of an extent.
func hasUnits(d int) bool { return d > 0 && d <= 128 && d%8 == 0 }

// size is that of an element of result k.
func (a *attention) size(k int) int {
	if a.with.narrow {
		return a.out[k].Dtype.Size()
	}
	return a.dtype.Size()
}

// rounds tells kernels of bfloat16 whether result k is that, too.
func (l *launch) rounds(a *attention, k int) *launch {
	if a.with.narrow {
		l.flag(kernels.IsNarrow(a.out[k]))
	}
	return l
}

// blocks is how many blocks make results of so many rows.
func (a *attention) blocks(rows int) int {
	tiles := (rows + a.with.tile - 1) / a.with.tile
	if a.b == 0 || a.h == 0 || tiles == 0 {
		return 0
	}
	if a.with.slices > math.MaxInt32/a.b/a.h/tiles {
		return math.MaxInt
	}
	return a.b * a.h * tiles * a.with.slices
}

// attend begins the launch of a kernel whose blocks make so many rows of a result.
func (a *attention) attend(name string, rows int) (*launch, error) {
	f, err := a.kernel(a.with.module, name+a.with.suffix, a.with.bytes)
	if err != nil {
		return nil, err
	}
	return a.call(f, a.blocks(rows), a.with.threads).dynamic(a.with.bytes), nil
}

// extents adds common.cuh's Heads.
func (a *attention) extents(l *launch) *launch {
	scale := 1.0
	if a.d > 0 {
		scale = 1 / math.Sqrt(float64(a.d))
	}
	return l.float(a.dtype, scale).u32(a.t).u32(a.s).u32(a.d).u32(a.h).flag(a.causal).u32(a.with.slices)
}

// rows adds arguments that are common.cuh's Rows.
func (l *launch) rows(all ...headRows) *launch {
	for _, r := range all {
		l.arg(r.at).u64(uint64(r.batch)).u64(uint64(r.head)).u64(uint64(r.row))
	}
	return l
}

package autodiff

import (
	"fmt"
	"log/slog"
	"math"
	"sync"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff/internal/cache"
	"github.com/weft-project/weft/autodiff/internal/callsite"
	"github.com/weft-project/weft/device"
)

// parameters are an op with what else it is told, as the user said it: the key of its function.
type parameters struct {
	op   parametrised
	n    uint8
	list [device.MaxRank]int // n axes, extents or bounds
	c    uint64              // a constant's bits
}

type parametrised uint8

const (
	opScale parametrised = iota
	opShift
	opSum
	opMean
	opMax
	opReshape
	opBroadcastTo
	opTranspose
	opSlice
	opConcat
	opSoftmax
	opLogSoftmax
	opLayerNorm
	opCast
	numParametrised
)

var parametrisedNames = [numParametrised]string{"Scale", "Shift", "Sum", "Mean", "Max", "Reshape", "BroadcastTo", "Transpose", "Slice", "Concat",
	"Softmax", "LogSoftmax", "LayerNorm", "Cast"}

// build applies the op.
func (p *parameters) build(g *Graph, in []*gorgonia.Node) *gorgonia.Node {
	list, c := p.list[:p.n], math.Float64frombits(p.c)
	switch p.op {
	case opScale:
		return g.Scale(in[0], c)
	case opShift:
		return g.Shift(in[0], c)
	case opSum:
		return g.Sum(in[0], list...)
	case opMean:
		return g.Mean(in[0], list...)
	case opMax:
		return g.Max(in[0], list...)
	case opReshape:
		return g.Reshape(in[0], list...)
	case opBroadcastTo:
		return g.BroadcastTo(in[0], list...)
	case opTranspose:
		return g.Transpose(in[0], list...)
	case opSlice:
		return g.Slice(in[0], list[0], list[1], list[2])
	case opConcat:
		return g.Concat(list[0], in...)
	case opSoftmax:
		return g.Softmax(in[0], list[0])
	case opLogSoftmax:
		return g.LogSoftmax(in[0], list[0])
	case opLayerNorm:
		return g.LayerNorm(in[0], in[1], in[2], c)
	}
	return g.Cast(in[0], device.Dtype(list[0]))
}

func (p *parameters) hash() uint64 {
	h := cache.Mix(p.c, uint64(p.op)<<8|uint64(p.n))
	for _, v := range p.list[:p.n] {
		h = cache.Mix(h, uint64(v))
	}
	return h
}

// withParameters keeps the functions of parameters. It is a cache: what it holds changes no result.
var withParameters struct {
	kept   cache.Bounded[known]
	mu     sync.Mutex
	warned [numParametrised]bool
}

type known struct {
	*parameters
	*Func
}

// function finds or makes the function of parameters.
func (p *parameters) function() *Func {
	h := p.hash()
	if k, ok := withParameters.kept.Recent(h); ok && *k.parameters == *p {
		return k.Func
	}
	f, first := p.findOrMake(h)
	if first { // outside of the lock: the logger is the user's
		slog.Warn("autodiff: ever new parameters, for each of which an op is compiled, which is slow; make what changes a tensor",
			"op", f.name, "kept", maxPrimitives, "called at", callsite.Outside().String())
	}
	return f
}

// findOrMake is function with a lock. It says whether a function had to go for the first of this
// op's.
func (p *parameters) findOrMake(h uint64) (f *Func, first bool) {
	all := &withParameters
	all.mu.Lock()
	defer all.mu.Unlock()
	if k, ok := all.kept.Find(h); ok && *k.parameters == *p {
		return k.Func, false
	}
	own := *p
	f = &Func{name: parametrisedNames[p.op], arity: -1, build: func(g *Graph, in []*gorgonia.Node) []*gorgonia.Node {
		return []*gorgonia.Node{own.build(g, in)}
	}}
	first = all.kept.Put(h, known{&own, f}, maxPrimitives) && !all.warned[p.op]
	all.warned[p.op] = all.warned[p.op] || first
	return f, first
}

// constant applies an op that is told a number.
func constant(op parametrised, c float64, in ...*Tensor) *Tensor {
	p := parameters{op: op, c: math.Float64bits(c)}
	return p.function().Call(in...)
}

// listed applies an op that is told a list of integers.
func listed(op parametrised, x *Tensor, list []int) *Tensor {
	p := parameters{op: op, n: uint8(len(list))}
	if copy(p.list[:], list) < len(list) {
		return failed(opError(parametrisedNames[op], fmt.Errorf("%w: %d axes; at most %d are supported", device.ErrBadShape, len(list), device.MaxRank)))
	}
	return p.function().Call(x)
}

// Scale is c·x.
func Scale(x *Tensor, c float64) *Tensor { return constant(opScale, c, x) }

// Shift is x + c.
func Shift(x *Tensor, c float64) *Tensor { return constant(opShift, c, x) }

// Sum adds over axes (negative ones count from the last) and drops them; over all where none are
// given.
func Sum(x *Tensor, axes ...int) *Tensor { return listed(opSum, x, axes) }

// Mean averages over axes and drops them.
func Mean(x *Tensor, axes ...int) *Tensor { return listed(opMean, x, axes) }

// Max is the largest over axes, which it drops; where several are largest the gradient is shared.
func Max(x *Tensor, axes ...int) *Tensor { return listed(opMax, x, axes) }

// Reshape keeps the elements in order under another shape; one extent may be −1. It copies nothing.
func Reshape(x *Tensor, shape ...int) *Tensor { return listed(opReshape, x, shape) }

// BroadcastTo repeats x along new axes and along axes of extent 1.
func BroadcastTo(x *Tensor, shape ...int) *Tensor { return listed(opBroadcastTo, x, shape) }

// Transpose permutes axes; without perm it reverses them.
func Transpose(x *Tensor, perm ...int) *Tensor { return listed(opTranspose, x, perm) }

// Slice keeps start ≤ index < stop of one axis.
func Slice(x *Tensor, axis, start, stop int) *Tensor {
	return listed(opSlice, x, []int{axis, start, stop})
}

// Concat joins tensors along one axis.
func Concat(axis int, xs ...*Tensor) *Tensor {
	p := parameters{op: opConcat, n: 1, list: [device.MaxRank]int{axis}}
	return p.function().Call(xs...)
}

// Softmax normalises e^x along one axis.
func Softmax(x *Tensor, axis int) *Tensor { return listed(opSoftmax, x, []int{axis}) }

// LogSoftmax is log(Softmax(x)), computed without overflow.
func LogSoftmax(x *Tensor, axis int) *Tensor { return listed(opLogSoftmax, x, []int{axis}) }

// LayerNorm normalises the last axis to mean 0 and variance 1, then scales by gamma and shifts by
// beta.
func LayerNorm(x, gamma, beta *Tensor, eps float64) *Tensor {
	return constant(opLayerNorm, eps, x, gamma, beta)
}

// Cast converts the dtype.
func Cast(x *Tensor, to device.Dtype) *Tensor { return listed(opCast, x, []int{int(to)}) }

package autodiff

import (
	"fmt"
	"hash/maphash"
	"log/slog"
	"math"
	"reflect"
	"sync"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff/internal/cache"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/callsite"
	"github.com/weft-project/weft/kernels"
)

// An op on tensors is a function that is made once. Those without parameters are ready made; the
// others are found by their parameters.

// single is the function of one instruction; of attention, which has two results, it gives the
// first.
func single(i kernels.Instr) *Func {
	_, attends := i.(kernels.Attention)
	return &Func{name: i.String(), arity: -1, build: func(g *Graph, in []*gorgonia.Node) []*gorgonia.Node {
		if attends {
			return append(g.ApplyAll(i, in...), nil)[:1]
		}
		return []*gorgonia.Node{g.Apply(i, in...)}
	}}
}

// functions makes the function of each instruction of a family.
func functions[F ~uint8](instr func(F) kernels.Instr) (all [64]*Func) {
	for fn := range all {
		all[fn] = single(instr(F(fn)))
	}
	return all
}

// instructions keeps the functions of what was given to [Run]. It is a cache: what it holds changes
// no result.
var instructions struct {
	sync.Mutex
	kept cache.Bounded[instruction]
}

type instruction struct {
	kind reflect.Type
	*Func
}

// maxPrimitives bounds the caches; parameters such as slice bounds may differ at every call.
const maxPrimitives = 1024

// Run applies one instruction to tensors and records it on the tape.
func Run(i kernels.Instr, in ...*Tensor) *Tensor {
	if i == nil {
		return failed(opError("Run", fmt.Errorf("%w: the instruction is nil", ErrFunction)))
	}
	kind, text := reflect.TypeOf(i), i.String()
	h := maphash.String(seed, text)
	instructions.Lock()
	f, ok := instructions.kept.Find(h)
	if !ok || f.kind != kind || f.name != text {
		f = instruction{kind, single(i)}
		instructions.kept.Put(h, f, maxPrimitives)
	}
	instructions.Unlock()
	return f.Call(in...)
}

var seed = maphash.MakeSeed()

// parametrised is an op that is told more than its operands: axes, extents, bounds, or a number.
type parametrised struct {
	name  string
	hash  uint64 // of the name
	build func(g *Graph, in []*gorgonia.Node, p *parameters) *gorgonia.Node
}

func parametrise(name string, build func(*Graph, []*gorgonia.Node, *parameters) *gorgonia.Node) *parametrised {
	return &parametrised{name, maphash.String(seed, name), build}
}

// listed is an op of one tensor that is told integers.
func listed(name string, method func(*Graph, *gorgonia.Node, ...int) *gorgonia.Node) *parametrised {
	return parametrise(name, func(g *Graph, in []*gorgonia.Node, p *parameters) *gorgonia.Node {
		return method(g, in[0], p.list[:p.n]...)
	})
}

// scalar is an op of one tensor that is told a number.
func scalar(name string, method func(*Graph, *gorgonia.Node, float64) *gorgonia.Node) *parametrised {
	return parametrise(name, func(g *Graph, in []*gorgonia.Node, p *parameters) *gorgonia.Node {
		return method(g, in[0], p.number())
	})
}

// withNumber applies an op that is told a number.
func (op *parametrised) withNumber(c float64, in ...*Tensor) *Tensor {
	p := parameters{op: op, c: math.Float64bits(c)}
	return p.function().Call(in...)
}

// withList applies an op that is told a list of integers.
func (op *parametrised) withList(x *Tensor, list []int) *Tensor {
	p := parameters{op: op, n: uint8(len(list))}
	if copy(p.list[:], list) < len(list) {
		return failed(opError(op.name, fmt.Errorf("%w: %d axes; at most %d are supported", device.ErrBadShape, len(list), device.MaxRank)))
	}
	return p.function().Call(x)
}

// parameters are an op with what else it is told, as the user said it: the key of its function.
type parameters struct {
	op   *parametrised
	n    uint8
	list [device.MaxRank]int // n axes, extents or bounds
	c    uint64              // a number's bits
}

func (p *parameters) number() float64 { return math.Float64frombits(p.c) }

func (p *parameters) hash() uint64 {
	h := cache.Mix(p.c, p.op.hash+uint64(p.n))
	for _, v := range p.list[:p.n] {
		h = cache.Mix(h, uint64(v))
	}
	return h
}

// withParameters keeps the functions of parameters. It is a cache: what it holds changes no result.
var withParameters struct {
	kept   cache.Bounded[known]
	mu     sync.Mutex
	warned map[*parametrised]bool
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
	f = &Func{name: own.op.name, arity: -1, build: func(g *Graph, in []*gorgonia.Node) []*gorgonia.Node {
		return []*gorgonia.Node{own.op.build(g, in, &own)}
	}}
	first = all.kept.Put(h, known{&own, f}, maxPrimitives) && !all.warned[own.op]
	if first {
		if all.warned == nil {
			all.warned = map[*parametrised]bool{}
		}
		all.warned[own.op] = true
	}
	return f, first
}

// composition tells functions of a few ops apart.
type composition struct {
	name string
	over kernels.Window
	c    float64
}

// composites keeps the functions of a few ops that were used eagerly, as instructions does those of
// one.
var composites struct {
	sync.RWMutex
	of map[composition]*Func
}

// composite is the function with this key, made when it is first asked for.
func composite(key composition, build func(g *Graph, in []*gorgonia.Node) []*gorgonia.Node) *Func {
	composites.RLock()
	f := composites.of[key]
	composites.RUnlock()
	if f != nil {
		return f
	}
	composites.Lock()
	defer composites.Unlock()
	if f := composites.of[key]; f != nil {
		return f
	}
	if composites.of == nil || len(composites.of) >= maxPrimitives {
		composites.of = map[composition]*Func{}
	}
	name := key.name
	if key.over != (kernels.Window{}) {
		name = fmt.Sprintf("%s(%v)", key.name, key.over)
	}
	f = &Func{name: name, arity: -1, build: build}
	composites.of[key] = f
	return f
}

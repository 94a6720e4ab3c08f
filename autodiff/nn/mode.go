package nn

import (
	"iter"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/weft-project/weft/autodiff"
)

// Moded is a layer that does one thing in training and another in evaluation. Layers begin in training.
type Moded interface{ SetTraining(on bool) }

// Train puts a layer, and those within it that [State] would find, into training mode. A layer's own SetTraining comes after those within it, so
// it has the last word on them.
func Train(l Layer) { setTraining(l, true) }

// Eval puts a layer, and those within it, into evaluation mode, as [Train] does.
func Eval(l Layer) { setTraining(l, false) }

func setTraining(l Layer, on bool) {
	w := walk{
		tensor: func(string, reflect.Value) bool { return true },
		moded: func(m Moded) {
			switch m.(type) {
			case Sequential, *Sequential: // its layers were met
			default:
				m.SetTraining(on)
			}
		},
	}
	w.visit("", reflect.ValueOf(l))
}

// SetTraining sets the mode of every layer that has one.
func (s Sequential) SetTraining(on bool) { setTraining(s, on) }

// mode is training until somebody says otherwise.
type mode struct{ eval atomic.Bool }

// SetTraining may be called while the layer is used; forwards that have begun keep their mode.
func (m *mode) SetTraining(on bool) { m.eval.Store(!on) }

// Training says which mode the layer is in.
func (m *mode) Training() bool { return !m.eval.Load() }

// State names every tensor of a layer that a checkpoint of a model must hold, parameters and running statistics: the exported fields of
// structs that are tensors, and those within fields and elements that are layers, with paths such as "0.W" or "Body.3.RunningMean".
func State(l Layer) iter.Seq2[string, *autodiff.Tensor] {
	return func(yield func(string, *autodiff.Tensor) bool) {
		w := walk{tensor: func(path string, at reflect.Value) bool { return yield(path, tensorAt(at)) }, moded: func(Moded) {}}
		w.visit("", reflect.ValueOf(l))
	}
}

// walk meets all that is within a layer, through exported fields and elements.
type walk struct {
	tensor func(path string, at reflect.Value) bool // a *autodiff.Tensor, not nil; false ends the walk
	moded  func(m Moded)                            // after what is within m
	inside []any                                    // the pointers on the way here: a layer may point back
}

// visit says whether to go on.
func (w *walk) visit(path string, v reflect.Value) bool {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer:
		return v.IsNil() || w.follow(path, v)
	}
	if !w.parts(path, v) {
		return false
	}
	if v.CanAddr() {
		v = v.Addr()
	}
	if m, ok := v.Interface().(Moded); ok {
		w.moded(m)
	}
	return true
}

// follow goes to what v points to.
func (w *walk) follow(path string, v reflect.Value) bool {
	p := v.Interface()
	if _, ok := p.(*autodiff.Tensor); ok {
		return w.tensor(path, v)
	}
	if _, ok := p.(Layer); !ok || slices.Contains(w.inside, p) {
		return true
	}
	w.inside = append(w.inside, p)
	defer func() { w.inside = w.inside[:len(w.inside)-1] }()
	return w.visit(path, v.Elem())
}

// parts visits fields and elements.
func (w *walk) parts(path string, v reflect.Value) bool {
	if path != "" {
		path += "."
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() <= reflect.Complex128 { // numbers, maybe many
			return true
		}
		for k := range v.Len() {
			if !w.visit(path+strconv.Itoa(k), v.Index(k)) {
				return false
			}
		}
	case reflect.Struct:
		for k := range v.NumField() {
			if f := v.Type().Field(k); f.IsExported() && !w.visit(path+f.Name, v.Field(k)) {
				return false
			}
		}
	}
	return true
}

// Dropout keeps each element with probability 1−P in training and scales it by 1/(1−P); in evaluation it is the identity. Every forward keeps others,
// but one that a checkpoint computes anew keeps the same. Layers of [NewDropout] repeat themselves from one seed; one without a seed, a literal,
// takes one at its first use, from the random numbers of the process.
type Dropout struct {
	P float64
	mode
	seed atomic.Uint64 // 0: none yet
	uses atomic.Uint64
}

// NewDropout takes its seed from src; with none it is as a literal.
func NewDropout(src *rand.Rand, p float64) *Dropout {
	l := &Dropout{P: p}
	if src != nil {
		l.seed.Store(max(src.Uint64(), 1))
	}
	return l
}

// seeded is the seed, taken now if there is none.
func (l *Dropout) seeded() uint64 {
	if l.seed.Load() == 0 {
		l.seed.CompareAndSwap(0, max(rand.Uint64(), 1)) // forwards at once agree on one
	}
	return l.seed.Load()
}

// Forward drops elements of x.
func (l *Dropout) Forward(x *autodiff.Tensor) *autodiff.Tensor {
	if !l.Training() || x.Err() != nil {
		return x
	}
	key := autodiff.RandomKey(l.seeded(), autodiff.Draw(x, func() uint64 { return l.uses.Add(1) }))
	return autodiff.Dropout(x, key, l.P)
}

// Params is nothing.
func (l *Dropout) Params() []*autodiff.Tensor { return nil }

package nn

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"sync/atomic"

	"github.com/weft-project/weft/autodiff"
)

// Moded is a layer that does one thing in training and another in evaluation. Layers begin in training.
type Moded interface{ SetTraining(on bool) }

// Train puts a layer and those within it into training mode.
func Train(l Layer) { setTraining(l, true) }

// Eval puts a layer and those within it into evaluation mode.
func Eval(l Layer) { setTraining(l, false) }

func setTraining(l Layer, on bool) {
	if m, ok := l.(Moded); ok {
		m.SetTraining(on)
	}
}

// SetTraining sets the mode of every layer that has one.
func (s Sequential) SetTraining(on bool) {
	for _, l := range s {
		setTraining(l, on)
	}
}

// mode is training until somebody says otherwise.
type mode struct{ eval atomic.Bool }

// SetTraining may be called while the layer is used; forwards that have begun keep their mode.
func (m *mode) SetTraining(on bool) { m.eval.Store(!on) }

// Training says which mode the layer is in.
func (m *mode) Training() bool { return !m.eval.Load() }

// State names every tensor of a layer that a checkpoint of a model must hold, parameters and running statistics: the exported fields of
// structs that are tensors, and those within fields and elements that are layers, with paths such as "0.W" or "Body.3.RunningMean".
func State(l Layer) iter.Seq2[string, *autodiff.Tensor] {
	return func(yield func(string, *autodiff.Tensor) bool) { state("", reflect.ValueOf(l), yield) }
}

// state goes on until yield says no.
func state(path string, v reflect.Value, yield func(string, *autodiff.Tensor) bool) bool {
	under := func(name string) string {
		if path == "" {
			return name
		}
		return path + "." + name
	}
	switch v.Kind() {
	case reflect.Interface:
		return v.IsNil() || state(path, v.Elem(), yield)
	case reflect.Pointer:
		if v.IsNil() {
			return true
		}
		if t, ok := v.Interface().(*autodiff.Tensor); ok {
			return yield(path, t)
		}
		_, ok := v.Interface().(Layer)
		return !ok || state(path, v.Elem(), yield)
	case reflect.Slice, reflect.Array:
		for k := range v.Len() {
			if !state(under(fmt.Sprint(k)), v.Index(k), yield) {
				return false
			}
		}
	case reflect.Struct:
		for k := range v.NumField() {
			if f := v.Type().Field(k); f.IsExported() && !state(under(f.Name), v.Field(k), yield) {
				return false
			}
		}
	}
	return true
}

// Dropout keeps each element with probability 1−P in training and scales it by 1/(1−P); in evaluation it is the identity. Every forward keeps others,
// but one that a checkpoint computes anew keeps the same.
type Dropout struct {
	P float64
	mode
	seed uint64
	uses atomic.Uint64
}

// NewDropout takes its seed from src.
func NewDropout(src *rand.Rand, p float64) *Dropout { return &Dropout{P: p, seed: src.Uint64()} }

// Forward drops elements of x.
func (l *Dropout) Forward(x *autodiff.Tensor) *autodiff.Tensor {
	if !l.Training() || x.Err() != nil {
		return x
	}
	key := autodiff.RandomKey(l.seed, autodiff.Draw(x, func() uint64 { return l.uses.Add(1) }))
	return autodiff.Dropout(x, key, l.P)
}

// Params is nothing.
func (l *Dropout) Params() []*autodiff.Tensor { return nil }

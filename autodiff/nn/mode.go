package nn

import (
	"math/rand/v2"
	"reflect"
	"sync/atomic"

	"github.com/weft-project/weft/autodiff"
)

// Moded is a layer that does one thing in training and another in evaluation. Layers begin in
// training.
type Moded interface{ SetTraining(on bool) }

// Train puts a layer, and those within it that [State] would find, into training mode. A layer's
// own SetTraining comes after those within it, so it has the last word on them.
func Train(l Layer) { setTraining(l, true) }

// Eval puts a layer, and those within it, into evaluation mode, as [Train] does.
func Eval(l Layer) { setTraining(l, false) }

func setTraining(l Layer, on bool) {
	w := walk{moded: func(m Moded) {
		switch m.(type) {
		case Sequential, *Sequential: // its layers were met
		default:
			m.SetTraining(on)
		}
	}}
	w.visit("", reflect.ValueOf(l), nil)
}

// SetTraining sets the mode of every layer that has one.
func (s Sequential) SetTraining(on bool) { setTraining(s, on) }

// mode is training until somebody says otherwise.
type mode struct{ eval atomic.Bool }

// SetTraining may be called while the layer is used; forwards that have begun keep their mode.
func (m *mode) SetTraining(on bool) { m.eval.Store(!on) }

// Training says which mode the layer is in.
func (m *mode) Training() bool { return !m.eval.Load() }

// Dropout keeps each element with probability 1−P in training and scales it by 1/(1−P); in
// evaluation it is the identity. Every forward keeps others, but one that a checkpoint computes
// anew keeps the same. Layers of [NewDropout] repeat themselves from one seed; one without a seed,
// a literal, takes one at its first use, or when its [State] is asked for, from the random numbers
// of the process. Seed and count are part of the State.
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

// Random is the seed, and how many forwards there have been.
func (l *Dropout) Random() (seed, uses uint64) { return l.seeded(), l.uses.Load() }

// SetRandom has the layer go on as another one, of which it is the [Dropout.Random]. No forward may
// be under way.
func (l *Dropout) SetRandom(seed, uses uint64) {
	l.seed.Store(seed)
	l.uses.Store(uses)
}

// Forward drops elements of x.
func (l *Dropout) Forward(x *autodiff.Tensor) *autodiff.Tensor {
	if !l.Training() || x.Err() != nil {
		return x
	}
	return autodiff.Dropout(x, l.key(x), l.P)
}

// key is that of a forward of what x is part of.
func (l *Dropout) key(x *autodiff.Tensor) *autodiff.Tensor {
	return autodiff.RandomKey(l.seeded(), autodiff.Draw(x, func() uint64 { return l.uses.Add(1) }))
}

// Params is nothing.
func (l *Dropout) Params() []*autodiff.Tensor { return nil }

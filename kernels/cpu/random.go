package cpu

import (
	"math"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/vec"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

// philox is the generator under one key.
type philox struct{ seed, counter uint64 }

// keyOf reads the operand that is a key.
func keyOf(b []byte) philox {
	k := device.As[int64](b)
	return philox{uint64(k[0]), uint64(k[1])}
}

// block is four random words.
func (p philox) block(n uint64) [4]uint32 {
	const (
		m0, m1 = 0xD2511F53, 0xCD9E8D57
		k0, k1 = 0x9E3779B9, 0xBB67AE85 // the golden ratio, and √3−1
	)
	a, b, c, d := uint32(n), uint32(n>>32), uint32(p.counter), uint32(p.counter>>32)
	x, y := uint32(p.seed), uint32(p.seed>>32)
	for range 10 {
		u, v := m0*uint64(a), m1*uint64(c)
		a, b, c, d = uint32(v>>32)^b^x, uint32(v), uint32(u>>32)^d^y, uint32(u)
		x, y = x+k0, y+k1
	}
	return [4]uint32{a, b, c, d}
}

// threshold is the number of words of which one below it has probability p.
func threshold(p float64) uint64 { return uint64(math.Round(p * (1 << 32))) }

// below is 1 for words below a threshold, else 0.
func below(w uint32, threshold uint64) uint64 { return (uint64(w) - threshold) >> 63 }

// drawing makes elements from words: every four of float32 or of Bernoulli, every two of float64.
type drawing[T vec.Float] struct {
	key  philox
	o, x []T
	fn   func(key philox, o, x []T, first int)
}

func (d *drawing[T]) Piece(from, to int) {
	x := d.x
	if x != nil {
		x = x[from:to]
	}
	d.fn(d.key, d.o[from:to], x, from)
}

// drawBody is a body that makes its result with fn, piece by piece: first is the place of the first
// element, a multiple of four. The key is the last operand, x the one before it, if there is one.
func drawBody[T vec.Float](fn func(key philox, o, x []T, first int)) parallel.Body {
	const grain = 1 << 14
	idle := &sync.Pool{New: func() any { return &drawing[T]{fn: fn} }}
	return func(outs, ins [][]byte) error {
		d := idle.Get().(*drawing[T])
		d.o, d.key = device.As[T](outs[0]), keyOf(ins[len(ins)-1])
		if len(ins) > 1 {
			d.x = device.As[T](ins[0])
		}
		parallel.For(len(d.o), grain, d)
		d.o, d.x = nil, nil
		idle.Put(d)
		return nil
	}
}

// randoms are the bodies of what draws.
func randoms[T vec.Float](i kernels.Instr, _, _ []kernels.Type) parallel.Body {
	switch i := i.(type) {
	case kernels.Random:
		return randomBody[T](i)
	case kernels.Dropout:
		return dropoutBody[T](i)
	}
	return nil
}

func randomBody[T vec.Float](i kernels.Random) parallel.Body {
	if i.Fn == kernels.Bernoulli {
		t := threshold(i.P)
		return drawBody(func(key philox, o, _ []T, first int) {
			for at := 0; at < len(o); at += 4 {
				w := key.block(uint64(first+at) / 4)
				for k := range o[at:min(at+4, len(o))] {
					o[at+k] = T(below(w[k], t))
				}
			}
		})
	}
	if i.Type.Dtype == device.Float32 {
		return drawBody(func(key philox, o, _ []float32, first int) {
			for at := 0; at < len(o); at += 4 {
				w := key.block(uint64(first+at) / 4)
				for k := range o[at:min(at+4, len(o))] {
					o[at+k] = float32(w[k]>>8) * (1. / (1 << 24))
				}
			}
		})
	}
	return drawBody(func(key philox, o, _ []float64, first int) {
		for at := 0; at < len(o); at += 2 {
			w := key.block(uint64(first+at) / 2)
			for k := range o[at:min(at+2, len(o))] {
				o[at+k] = float64((uint64(w[2*k])<<32|uint64(w[2*k+1]))>>11) * (1. / (1 << 53))
			}
		}
	})
}

func dropoutBody[T vec.Float](i kernels.Dropout) parallel.Body {
	t, scale := threshold(1-i.P), T(1/(1-i.P)) // with P = 1 nothing is kept, and nothing scaled
	return drawBody(func(key philox, o, x []T, first int) {
		for at := 0; at < len(o); at += 4 {
			w := key.block(uint64(first+at) / 4)
			for k, v := range x[at:min(at+4, len(o))] {
				either := [2]T{0, v * scale} // no branch, which nothing could predict
				o[at+k] = either[below(w[k], t)&1]
			}
		}
	})
}

package kernels

import (
	"math"
	"math/bits"

	"github.com/weft-project/weft/device"
)

// philox is the generator under one key.
type philox struct{ seed, counter uint64 }

// keyOf reads the operand that is a key.
func keyOf(b []byte) philox {
	k := device.As[int64](b)
	return philox{uint64(k[0]), uint64(k[1])}
}

// block is four random words.
func (p philox) block(n uint64) (w [4]uint32) {
	const (
		m0, m1 = 0xD2511F53, 0xCD9E8D57
		k0, k1 = 0x9E3779B9, 0xBB67AE85 // the golden ratio, and √3−1
	)
	a, b, c, d := uint32(n), uint32(n>>32), uint32(p.counter), uint32(p.counter>>32)
	x, y := uint32(p.seed), uint32(p.seed>>32)
	for range 10 {
		h0, l0 := bits.Mul32(m0, a)
		h1, l1 := bits.Mul32(m1, c)
		a, b, c, d = h1^b^x, l1, h0^d^y, l0
		x, y = x+k0, y+k1
	}
	return [4]uint32{a, b, c, d}
}

// threshold is the number of words of which one below it has probability p.
func threshold(p float64) uint64 { return uint64(math.Round(p * (1 << 32))) }

// words calls fn with up to four elements at a time: the first's place, how many, and a word for each.
func (p philox) words(n int, fn func(at, n int, w [4]uint32)) {
	for at := 0; at < n; at += 4 {
		fn(at, min(4, n-at), p.block(uint64(at/4)))
	}
}

func randomBody[T device.Float](i Random) body {
	if i.Fn == Bernoulli {
		below := threshold(i.P)
		return func(outs, ins [][]byte) error {
			o := device.As[T](outs[0])
			keyOf(ins[0]).words(len(o), func(at, n int, w [4]uint32) {
				for k := range n {
					o[at+k] = 0
					if uint64(w[k]) < below {
						o[at+k] = 1
					}
				}
			})
			return nil
		}
	}
	return func(outs, ins [][]byte) error {
		key := keyOf(ins[0])
		switch o := any(device.As[T](outs[0])).(type) {
		case []float32:
			key.words(len(o), func(at, n int, w [4]uint32) {
				for k := range n {
					o[at+k] = float32(w[k]>>8) * (1. / (1 << 24))
				}
			})
		case []float64:
			for e := range o {
				w := key.block(uint64(e / 2))
				hi, lo := w[e%2*2], w[e%2*2+1]
				o[e] = float64((uint64(hi)<<32|uint64(lo))>>11) * (1. / (1 << 53))
			}
		}
		return nil
	}
}

func dropoutBody[T device.Float](i Dropout) body {
	below, scale := threshold(1-i.P), T(1/(1-i.P)) // with P = 1 nothing is kept, and nothing scaled
	return func(outs, ins [][]byte) error {
		o, x := device.As[T](outs[0]), device.As[T](ins[0])
		keyOf(ins[1]).words(len(o), func(at, n int, w [4]uint32) {
			for k := range n {
				v := T(0)
				if uint64(w[k]) < below {
					v = x[at+k] * scale
				}
				o[at+k] = v
			}
		})
		return nil
	}
}

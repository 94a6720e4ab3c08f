package kernels

import (
	"fmt"

	"github.com/weft-project/weft/device"
)

// Random numbers are a function of a key and of an element's place: Philox4x32-10 (Salmon, Moraes,
// Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The key is an operand,
// int64 (2): a seed and a counter, of which every use of one seed takes another. Element e of the
// result is made of word e mod 4 of block (e div 4 in words 0 and 1, the counter in words 2 and 3)
// under the seed; a float64 of words 2·(e mod 2) and the next of block e div 2. So a result is the
// same on every device, however many threads make it, and made again when it is needed again.

// RandomFn is a distribution.
type RandomFn uint8

// The distributions.
const (
	Uniform   RandomFn = iota // over [0, 1): 24 bits of a word as float32, 53 of two as float64
	Bernoulli                 // 1 with probability P, else 0: one word for either dtype
	numRandom
)

var randomNames = [numRandom]string{"Uniform", "Bernoulli"}

func (f RandomFn) String() string {
	if f < numRandom {
		return randomNames[f]
	}
	return fmt.Sprintf("RandomFn(%d)", uint8(f))
}

// Random draws every element of a tensor: key → a tensor of type Type.
type Random struct {
	Fn   RandomFn
	Type Type
	P    float64 // of Bernoulli; others ignore it
}

func (i Random) String() string {
	if i.Fn == Bernoulli {
		return fmt.Sprintf("%v(%v, p=%v)", i.Fn, i.Type, i.P)
	}
	return fmt.Sprintf("%v(%v)", i.Fn, i.Type)
}

// Infer takes a key.
func (i Random) Infer(in []Type) ([]Type, error) {
	if err := expect(i, in, 1); err != nil {
		return nil, err
	}
	if err := expectKey(i, in, 0); err != nil {
		return nil, err
	}
	if i.Fn >= numRandom {
		return nil, refuse(i, in, "there is no such distribution")
	}
	if !i.Type.Dtype.IsFloat() {
		return nil, refuse(i, in, "random numbers are float32 or float64, not %v", i.Type.Dtype)
	}
	if i.Fn == Bernoulli {
		if err := probability(i, in, i.P); err != nil {
			return nil, err
		}
	}
	return result(i, in, i.Type.Dtype, i.Type.Shape)
}

func (i Random) flops(in, out []Type) int { return elems(out, 0) }

// expectKey checks that operand k is a seed and a counter.
func expectKey(i Instr, in []Type, k int) error {
	if !isKey(in[k]) {
		return refuse(i, in, "the key must be int64(2): a seed and a counter")
	}
	return nil
}

func isKey(t Type) bool { return t.Dtype == device.Int64 && t.Shape.Equal(device.Shape{2}) }

func probability(i Instr, in []Type, p float64) error {
	if !(p >= 0 && p <= 1) {
		return refuse(i, in, "a probability of %v, expected one from 0 to 1", p)
	}
	return nil
}

// Dropout keeps each element with probability 1−P and scales it by 1/(1−P), and gives 0 for the
// others, whatever they were: (x, key) → like x. It keeps the elements for which Random{Bernoulli,
// P: 1−P} of the key has 1. Its gradient is itself: (gy, key) → gx.
type Dropout struct{ P float64 }

func (i Dropout) String() string { return fmt.Sprintf("Dropout(%v)", i.P) }

// Infer takes one tensor of floats and a key.
func (i Dropout) Infer(in []Type) ([]Type, error) {
	if err := expect(i, in, 2); err != nil {
		return nil, err
	}
	if err := sameFloats(i, in, in[:1]); err != nil {
		return nil, err
	}
	if err := expectKey(i, in, 1); err != nil {
		return nil, err
	}
	if err := probability(i, in, i.P); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

func (i Dropout) flops(in, out []Type) int { return elems(out, 0) }

func (i Dropout) overwrites(in, out []Type, result, operand int) bool {
	return in[operand].Equal(out[result])
}

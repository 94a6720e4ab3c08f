package main

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/weft-project/weft/autodiff"
)

// generate writes on from a prompt. Temperature 0 takes the likeliest piece every time.
func generate(c context.Context, m language, d *corpus, s settings) (string, error) {
	ids, err := d.encode(s.prompt)
	if err != nil {
		return "", err
	}
	src := rand.New(rand.NewPCG(s.seed, 5))
	for range s.sample {
		window := make([]int32, s.context) // what follows a token has no effect on it
		n := copy(window, ids[max(0, len(ids)-s.context):])
		logits, err := m.values(c, autodiff.New(window, 1, s.context), nil)
		if err != nil {
			return "", err
		}
		v := len(d.pieces)
		ids = append(ids, pick(src, logits[(n-1)*v:n*v], s.temperature))
	}
	return d.decode(ids), nil
}

// pick draws an index by softmax(logits / temperature).
func pick(src *rand.Rand, logits []float32, temperature float64) int32 {
	top := slices.Max(logits)
	if temperature == 0 {
		return int32(slices.Index(logits, top))
	}
	sum := 0.0
	sums := make([]float64, len(logits))
	for i, l := range logits {
		sum += math.Exp(float64(l-top) / temperature)
		sums[i] = sum
	}
	at, _ := slices.BinarySearch(sums, src.Float64()*sum)
	return int32(min(at, len(logits)-1))
}

package main

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/examples/internal/opticks"
)

// errText wraps everything that is wrong with a text.
var errText = errors.New("bad text")

// maxText bounds a text, in bytes.
const maxText = 1 << 26

// readText reads a file, or gives the built-in text.
func readText(file string) (string, error) {
	if file == "" {
		return opticks.Text(), nil
	}
	if info, err := os.Stat(file); err != nil {
		return "", err
	} else if info.Size() > maxText {
		return "", fmt.Errorf("%w: %s has %d bytes; expected at most %d", errText, file, info.Size(), maxText)
	}
	text, err := os.ReadFile(file)
	return string(text), err
}

// corpus is a text as tokens.
type corpus struct {
	*vocabulary
	train, test []int32
}

// testShare of the text, its end, is for the test.
const testShare = 0.05

// newCorpus learns a vocabulary of the given size, or what the text is good for, and splits the
// text, of which each part must be longer than the context.
func newCorpus(text string, size, context int) (*corpus, error) {
	d := &corpus{vocabulary: learn(text, size)}
	all, err := d.encode(text)
	if err != nil {
		return nil, err
	}
	tests := int(testShare * float64(len(all)))
	if tests <= context {
		return nil, fmt.Errorf("%w: %d tokens, of which %g %% are for the test, are too few for a context of %d", errText, len(all), 100*testShare, context)
	}
	d.train, d.test = all[:len(all)-tests], all[len(all)-tests:]
	return d, nil
}

// micro is a micro-batch: tokens, and for each the one that follows.
type micro struct{ ids, next *autodiff.Tensor }

// batch draws micro-batches of windows at random places.
func batch(src *rand.Rand, tokens []int32, micros, rows, context int) []micro {
	out := make([]micro, micros)
	for i := range out {
		var ids, next []int32
		for range rows {
			at := src.IntN(len(tokens) - context)
			ids, next = append(ids, tokens[at:at+context]...), append(next, tokens[at+1:at+1+context]...)
		}
		out[i] = micro{autodiff.New(ids, rows, context), autodiff.New(next, rows, context)}
	}
	return out
}

// vocabulary is byte pairs (Sennrich et al., arXiv:1508.07909): the bytes of a text, then pieces
// that join two others, in the order in which they were learned. No piece reaches beyond a word and
// the space before it.
type vocabulary struct {
	pieces []string
	joins  []pair // of the pieces after the bytes
}

type pair struct{ a, b int32 }

// learn joins, again and again, the two neighbours that are most frequent, until there are size
// pieces or nothing comes twice.
func learn(text string, size int) *vocabulary {
	v := &vocabulary{}
	seen, counts := [256]bool{}, map[string]int{}
	for i := range len(text) {
		seen[text[i]] = true
	}
	for b, is := range seen {
		if is {
			v.pieces = append(v.pieces, string([]byte{byte(b)}))
		}
	}
	for w := range words(text) {
		counts[w]++
	}
	distinct := slices.Sorted(maps.Keys(counts))
	parts := make([][]int32, len(distinct))
	for i, w := range distinct {
		parts[i], _ = v.spell(w) // every byte is known
	}
	pairs := map[pair]int{}
	tally := func(i, times int) {
		for j := 1; j < len(parts[i]); j++ {
			pairs[pair{parts[i][j-1], parts[i][j]}] += times * counts[distinct[i]]
		}
	}
	for i := range parts {
		tally(i, 1)
	}
	for len(v.pieces) < size {
		best := mostFrequent(pairs)
		if pairs[best] < 2 {
			break
		}
		for i, p := range parts {
			if best.in(p) {
				tally(i, -1)
				parts[i] = join(p, best, int32(len(v.pieces)))
				tally(i, 1)
			}
		}
		v.pieces, v.joins = append(v.pieces, v.pieces[best.a]+v.pieces[best.b]), append(v.joins, best)
	}
	return v
}

// mostFrequent is the pair that comes most often; of several the smallest.
func mostFrequent(pairs map[pair]int) (best pair) {
	most := 0
	for p, n := range pairs {
		if n > most || n == most && (p.a < best.a || p.a == best.a && p.b < best.b) {
			best, most = p, n
		}
	}
	return best
}

func (p pair) in(ids []int32) bool {
	for i := 1; i < len(ids); i++ {
		if ids[i-1] == p.a && ids[i] == p.b {
			return true
		}
	}
	return false
}

// join writes piece wherever p stands, from the left, in place.
func join(ids []int32, p pair, piece int32) []int32 {
	out := ids[:0]
	for i := 0; i < len(ids); i++ {
		if i+1 < len(ids) && ids[i] == p.a && ids[i+1] == p.b {
			out = append(out, piece)
			i++
		} else {
			out = append(out, ids[i])
		}
	}
	return out
}

// spell gives the pieces of single bytes.
func (v *vocabulary) spell(text string) ([]int32, error) {
	ids := make([]int32, len(text))
	for i := range len(text) {
		at, found := slices.BinarySearch(v.pieces[:len(v.pieces)-len(v.joins)], text[i:i+1])
		if !found {
			return nil, fmt.Errorf("%w: %q is not in the text that the model learns", errText, text[i:i+1])
		}
		ids[i] = int32(at)
	}
	return ids, nil
}

// encode gives the pieces of a text.
func (v *vocabulary) encode(text string) ([]int32, error) {
	var out []int32
	known := map[string][]int32{}
	for w := range words(text) {
		ids, ok := known[w]
		if !ok {
			var err error
			if ids, err = v.spell(w); err != nil {
				return nil, err
			}
			for i, p := range v.joins {
				ids = join(ids, p, int32(len(v.pieces)-len(v.joins)+i))
			}
			known[w] = ids
		}
		out = append(out, ids...)
	}
	return out, nil
}

// decode gives the text of pieces.
func (v *vocabulary) decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(v.pieces[id])
	}
	return b.String()
}

// words cuts a text: letters with the space before them, and every other byte by itself.
func words(text string) iter.Seq[string] {
	letter := func(i int) bool { return i < len(text) && (text[i]|0x20 >= 'a' && text[i]|0x20 <= 'z') }
	return func(yield func(string) bool) {
		for from := 0; from < len(text); {
			to := from + 1
			if letter(from) || text[from] == ' ' {
				for letter(to) {
					to++
				}
			}
			if !yield(text[from:to]) {
				return
			}
			from = to
		}
	}
}

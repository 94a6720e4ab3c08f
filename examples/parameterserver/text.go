package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/weft-project/weft/examples/internal/opticks"
)

// errText wraps everything that is wrong with a text.
var errText = errors.New("bad text")

// maxText bounds a text, in bytes.
const maxText = 1 << 28

// corpus is a text as numbers of its frequent words.
type corpus struct {
	words []string // by number, the most frequent first
	count []int    // how often each occurs
	text  []int64  // without the seldom words
}

// readCorpus reads a file, or the built-in text. Every worker reads the same, and gets the same
// numbers.
func readCorpus(file string, minCount int) (*corpus, error) {
	text := opticks.Text()
	if file != "" {
		info, err := os.Stat(file)
		if err != nil {
			return nil, err
		}
		if info.Size() > maxText {
			return nil, fmt.Errorf("%w: %s has %d bytes; expected at most %d", errText, file, info.Size(), maxText)
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		text = string(raw)
	}
	return newCorpus(text, minCount)
}

func newCorpus(text string, minCount int) (*corpus, error) {
	tokens := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && r != '\'' })
	seen := map[string]int{}
	for i, t := range tokens {
		tokens[i] = strings.Trim(t, "'")
		seen[tokens[i]]++
	}
	delete(seen, "")
	maps.DeleteFunc(seen, func(_ string, n int) bool { return n < minCount })
	d := &corpus{words: slices.SortedFunc(maps.Keys(seen), func(a, b string) int {
		return cmp.Or(cmp.Compare(seen[b], seen[a]), cmp.Compare(a, b))
	})}
	number := map[string]int64{}
	for i, w := range d.words {
		number[w] = int64(i)
		d.count = append(d.count, seen[w])
	}
	for _, t := range tokens {
		if i, ok := number[t]; ok {
			d.text = append(d.text, i)
		}
	}
	if len(d.words) < 2 {
		return nil, fmt.Errorf("%w: %d words occur %d times or more; expected two or more", errText, len(d.words), minCount)
	}
	return d, nil
}

// shard is part i of n of the text.
func (d *corpus) shard(i, n int) []int64 { return d.text[i*len(d.text)/n : (i+1)*len(d.text)/n] }

const (
	window = 5    // words on each side, at most
	often  = 1e-3 // words more frequent than that are left out at times, as word2vec does
)

// pairs gives pairs of a word and one near it, without end.
type pairs struct {
	d     *corpus
	shard []int64
	src   *rand.Rand
	queue [][2]int64
}

// batch is the next n pairs, as two lists.
func (p *pairs) batch(n int) (words, near []int64) {
	for range n {
		for len(p.queue) == 0 {
			p.refill()
		}
		last := len(p.queue) - 1
		words, near = append(words, p.queue[last][0]), append(near, p.queue[last][1])
		p.queue = p.queue[:last]
	}
	return words, near
}

// refill goes through the shard once.
func (p *pairs) refill() {
	var kept []int64
	for _, w := range p.shard {
		if f := float64(p.d.count[w]) / float64(len(p.d.text)); p.src.Float64() < math.Sqrt(often/f)+often/f {
			kept = append(kept, w)
		}
	}
	for i, w := range kept {
		reach := 1 + p.src.IntN(window)
		for j := max(0, i-reach); j <= min(len(kept)-1, i+reach); j++ {
			if j != i {
				p.queue = append(p.queue, [2]int64{w, kept[j]})
			}
		}
	}
	if len(p.queue) == 0 { // a shard of one word
		p.queue = append(p.queue, [2]int64{p.shard[0], p.shard[0]})
	}
	p.src.Shuffle(len(p.queue), func(i, j int) { p.queue[i], p.queue[j] = p.queue[j], p.queue[i] })
}

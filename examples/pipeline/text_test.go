package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/examples/internal/opticks"
)

func TestPiecesOfTheBuiltInTextAreItsBytesAndItsCommonestWords(t *testing.T) {
	d, err := newCorpus(opticks.Text(), 512, 64)
	require.NoError(t, err)
	require.Len(t, d.pieces, 512)
	for _, p := range []string{" the", " Light", " Colours", " Rays", "\n", "e"} {
		require.Contains(t, d.pieces, p)
	}
	all := append(slices.Clone(d.train), d.test...)
	require.Equal(t, opticks.Text(), d.decode(all))
	require.InEpsilon(t, testShare, float64(len(d.test))/float64(len(all)), 1e-3)
	require.Less(t, len(all), len(opticks.Text())*45/100, "a piece has more than two bytes")
}

// slowPieces is learn by its definition: it counts in the words themselves, as strings.
func slowPieces(text string, size int) []string {
	var ws [][]string
	var pieces []string
	for w := range words(text) {
		var bs []string
		for i := range len(w) {
			bs = append(bs, w[i:i+1])
			pieces = append(pieces, w[i:i+1])
		}
		ws = append(ws, bs)
	}
	slices.Sort(pieces)
	pieces = slices.Compact(pieces)
	for len(pieces) < size {
		counts := map[[2]int]int{}
		for _, w := range ws {
			for i := 1; i < len(w); i++ {
				counts[[2]int{slices.Index(pieces, w[i-1]), slices.Index(pieces, w[i])}]++
			}
		}
		var best [2]int
		for p, n := range counts {
			if n > counts[best] || n == counts[best] && slices.Compare(p[:], best[:]) < 0 {
				best = p
			}
		}
		if counts[best] < 2 {
			break
		}
		a, b := pieces[best[0]], pieces[best[1]]
		pieces = append(pieces, a+b)
		for i, w := range ws {
			var joined []string
			for j := 0; j < len(w); j++ {
				if j+1 < len(w) && w[j] == a && w[j+1] == b {
					joined = append(joined, a+b)
					j++
				} else {
					joined = append(joined, w[j])
				}
			}
			ws[i] = joined
		}
	}
	return pieces
}

// letters is a text with many repetitions.
func letters(src *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		b.WriteByte("aab c\n."[src.IntN(7)])
	}
	return b.String()
}

func TestPiecesAreThoseOfTheDefinition(t *testing.T) {
	for seed := range uint64(100) {
		src := rand.New(rand.NewPCG(seed, 1))
		text, size := letters(src, 1+src.IntN(300)), 1+src.IntN(30)
		pieces := learn(text, size).pieces
		// Equal texts of different pieces ("aa"+"b", "a"+"ab") may both become pieces; the
		// definition finds the first by its text.
		if slow := slowPieces(text, size); len(slices.Compact(slices.Sorted(slices.Values(pieces)))) == len(pieces) {
			require.Equal(t, slow, pieces, "seed %d", seed)
		}
	}
}

func FuzzATextComesBackFromItsPieces(f *testing.F) {
	f.Add("The Rays of Light, the Rays", "Rays", 40)
	f.Add("\x00\xff ÄÄÄÄ", "Ä", 300)
	f.Fuzz(func(t *testing.T, text, more string, size int) {
		if len(text) > 1<<12 || size > 1<<9 {
			return
		}
		v := learn(text, size)
		ids, err := v.encode(text)
		require.NoError(t, err)
		require.Equal(t, text, v.decode(ids))
		if ids, err = v.encode(more); err == nil {
			require.Equal(t, more, v.decode(ids))
		} else {
			require.ErrorIs(t, err, errText)
		}
	})
}

func TestABatchIsWindowsOfTheTextAndWhatFollowsEachToken(t *testing.T) {
	tokens := make([]int32, 40)
	for i := range tokens {
		tokens[i] = int32(i)
	}
	for _, m := range batch(rand.New(rand.NewPCG(1, 1)), tokens, 20, 3, 39) {
		ids, err := autodiff.Values[int32](m.ids)
		require.NoError(t, err)
		next, err := autodiff.Values[int32](m.next)
		require.NoError(t, err)
		require.Len(t, ids, 3*39)
		for i := range ids {
			require.EqualValues(t, i%39, ids[i])
			require.Equal(t, ids[i]+1, next[i])
		}
	}
}

func TestATextThatCannotBeLearnedIsRefused(t *testing.T) {
	_, err := newCorpus(strings.Repeat("a b ", 100), 10, 64)
	require.ErrorIs(t, err, errText)
	require.ErrorContains(t, err, "too few")
	_, err = readText(filepath.Join(t.TempDir(), "absent.txt"))
	require.ErrorIs(t, err, os.ErrNotExist)
	d, err := newCorpus(opticks.Text(), 100, 64)
	require.NoError(t, err)
	_, err = d.encode("Farbenlehre: Ü")
	require.ErrorIs(t, err, errText)
}

package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWordsAreNumberedByHowOftenTheyOccur(t *testing.T) {
	d, err := newCorpus("The cat, the _hat_; 'the' cat: don't DON'T '' x", 2)
	require.NoError(t, err)
	require.Equal(t, []string{"the", "cat", "don't"}, d.words)
	require.Equal(t, []int{3, 2, 2}, d.count)
	require.Equal(t, []int64{0, 1, 0, 0, 1, 2, 2}, d.text)
	require.Equal(t, []int64{0, 1, 0}, d.shard(0, 2))
	require.Equal(t, []int64{0, 1, 2, 2}, d.shard(1, 2))
}

func TestATextThatIsNoneIsRefused(t *testing.T) {
	_, err := newCorpus("one two three", 2)
	require.ErrorIs(t, err, errText)
	_, err = readCorpus(filepath.Join(t.TempDir(), "none"), 1)
	require.ErrorIs(t, err, os.ErrNotExist)
	file := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(file, []byte("a b a b"), 0o600))
	d, err := readCorpus(file, 2)
	require.NoError(t, err)
	require.Len(t, d.text, 4)
}

func TestTheBuiltInTextHasTheColours(t *testing.T) {
	d, err := readCorpus("", 5)
	require.NoError(t, err)
	require.Greater(t, len(d.words), 1000)
	require.Len(t, d.askedFor(), 6)
	for _, group := range kin {
		for _, w := range group {
			require.GreaterOrEqual(t, d.number(w), 0, w)
		}
	}
}

func TestPairsAreOfWordsThatStandNearEachOther(t *testing.T) {
	d := &corpus{}
	for i := range 1000 { // every word once: none is left out
		d.words, d.count, d.text = append(d.words, ""), append(d.count, 1), append(d.text, int64(i))
	}
	p := pairs{d: d, shard: d.shard(1, 2), src: rand.New(rand.NewPCG(1, 1))}
	words, near := p.batch(5000)
	require.Len(t, near, 5000)
	for i, w := range words {
		require.NotEqual(t, w, near[i])
		require.LessOrEqual(t, max(w-near[i], near[i]-w), int64(window))
		require.GreaterOrEqual(t, min(w, near[i]), int64(500))
	}
	require.Greater(t, len(slices.Compact(slices.Sorted(slices.Values(words)))), 450)
	lonely := pairs{d: d, shard: []int64{7}, src: rand.New(rand.NewPCG(1, 1))}
	words, near = lonely.batch(2)
	require.Equal(t, []int64{7, 7}, words)
	require.Equal(t, words, near)
}

func TestLikenessTellsKinFromOthers(t *testing.T) {
	d, err := newCorpus("red green one two glass red green one two glass", 2)
	require.NoError(t, err)
	x := map[string][]float64{"red": {1, 0}, "green": {1, 0}, "one": {0, 1}, "two": {0, 1}, "glass": {-1, 0}}
	var rows [][]float64
	for _, w := range d.words {
		rows = append(rows, x[w])
	}
	// Kin have a cosine of 1. Of the pairs of strangers, 4 of 8 are at right angles and glass is
	// opposite to 2 colours.
	require.InDelta(t, 1-(-2./8), d.kinship(rows), 1e-12)
	require.Equal(t, "green", d.nearest(rows, d.number("red"), 1)[0])
	require.Len(t, d.nearest(rows, 0, 9), 4)
	require.Zero(t, (&corpus{words: []string{"a"}}).kinship([][]float64{{1}}))
}

package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func write(t *testing.T, name string, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, content, 0o600))
	return file
}

func TestTheBuiltInDigitsAreSplitAndScaled(t *testing.T) {
	d, err := load("", 1)
	require.NoError(t, err)
	require.Equal(t, []int{1438, 359, 64, 10}, []int{len(d.train.y), len(d.test.y), d.features, d.classes})
	for _, row := range d.train.x {
		for _, v := range row {
			require.True(t, v >= 0 && v <= 1)
		}
	}
	again, err := load("", 1)
	require.NoError(t, err)
	require.Equal(t, d, again)
	other, err := load("", 2)
	require.NoError(t, err)
	require.NotEqual(t, d.test.y, other.test.y)
}

// blobs are two classes, 5 and 9, that a line separates; with a heading, a comment and a constant column.
func blobs() []byte {
	var b strings.Builder
	b.WriteString("a, b, c, class\n# a comment\n")
	for i := range 60 {
		fmt.Fprintf(&b, "%d, 7, %g, %d\n", i, float64(i%2)*10+float64(i)/100, 5+4*(i%2))
	}
	return []byte(b.String())
}

func TestAnyTableWhoseLastColumnIsTheClassTrains(t *testing.T) {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, err := w.Write(blobs())
	require.NoError(t, err)
	require.NoError(t, w.Close())
	for name, content := range map[string][]byte{"plain.csv": blobs(), "packed.csv.gz": z.Bytes()} {
		r := runJSON(t, "--workers", "1", "--data", write(t, name, content), "--batch", "8")
		require.Equal(t, []int{60, 3, 2}, []int{r.Rows, r.Features, r.Classes})
		require.Equal(t, 1.0, r.TestAccuracy)
	}
}

func TestABadDataFileIsNamedWithTheLineAndTheCause(t *testing.T) {
	good := strings.Repeat("1,2,0\n3,4,1\n", 10)
	for name, c := range map[string]struct{ content, says string }{
		"truncated.csv.gz": {string(builtin[:len(builtin)/2]), "the file is truncated"},
		"cut.csv":          {good + "1,2", ":21: bad data: record on line 21: wrong number of fields"},
		"text.csv":         {good + "1,x,0\n", `:21: bad data: column 2: "x"; expected a number`},
		"nan.csv":          {good + "1,NaN,0\n", `column 2: "NaN"`},
		"fraction.csv":     {good + "1,2,0.5\n", "class 0.5; expected a whole number"},
		"one-class.csv":    {strings.Repeat("1,2,0\n", 10), "1 different classes"},
		"one-column.csv":   {"1\n2\n", "at least one feature and a class"},
		"few.csv":          {"1,0\n2,1\n", "too few"},
		"empty.csv":        {"", "0 rows"},
		"not-gzip.csv.gz":  {"\x1f\x8bnot gzip", "gzip"},
	} {
		_, err := load(write(t, name, []byte(c.content)), 1)
		require.ErrorIs(t, err, ErrData, name)
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, err, c.says, name)
	}
	_, err := load(filepath.Join(t.TempDir(), "absent.csv"), 1)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestABadDataFileEndsBothWorkersWithItsName(t *testing.T) {
	var out, errs bytes.Buffer
	file := write(t, "truncated.csv.gz", builtin[:1000])
	require.Equal(t, 1, run(t.Context(), []string{"--data", file}, &out, &errs))
	require.Contains(t, errs.String(), "truncated.csv.gz")
	require.Contains(t, errs.String(), "worker0 (rank 0")
}

func FuzzReadingATable(f *testing.F) {
	f.Add(blobs())
	f.Add(builtin[:500])
	f.Fuzz(func(t *testing.T, raw []byte) {
		rows, err := read("fuzz", bytes.NewReader(raw))
		if err != nil {
			require.ErrorIs(t, err, ErrData)
			return
		}
		if d, err := split("fuzz", rows, 1); err == nil {
			require.Len(t, append(d.train.y, d.test.y...), len(rows))
		}
	})
}

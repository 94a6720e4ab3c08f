package table

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
	d, err := Load("", 1)
	require.NoError(t, err)
	require.Equal(t, []int{1438, 359, 64, 10}, []int{len(d.Train.Y), len(d.Test.Y), d.Features, d.Classes})
	for _, row := range d.Train.X {
		for _, v := range row {
			require.True(t, v >= 0 && v <= 1)
		}
	}
	again, err := Load("", 1)
	require.NoError(t, err)
	require.Equal(t, d, again)
	other, err := Load("", 2)
	require.NoError(t, err)
	require.NotEqual(t, d.Test.Y, other.Test.Y)
}

// blobs are two classes, 5 and 9, that a line separates; with a heading, a comment and a constant
// column.
func blobs() []byte {
	var b strings.Builder
	b.WriteString("a, b, c, class\n# a comment\n")
	for i := range 60 {
		fmt.Fprintf(&b, "%d, 7, %g, %d\n", i, float64(i%2)*10+float64(i)/100, 5+4*(i%2))
	}
	return []byte(b.String())
}

func TestAnyTableWhoseLastColumnIsTheClassIsRead(t *testing.T) {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, err := w.Write(blobs())
	require.NoError(t, err)
	require.NoError(t, w.Close())
	for name, content := range map[string][]byte{"plain.csv": blobs(), "packed.csv.gz": z.Bytes()} {
		d, err := Load(write(t, name, content), 1)
		require.NoError(t, err)
		require.Equal(t, []int{60, 3, 2}, []int{len(d.Train.Y) + len(d.Test.Y), d.Features, d.Classes})
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
		_, err := Load(write(t, name, []byte(c.content)), 1)
		require.ErrorIs(t, err, ErrData, name)
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, err, c.says, name)
	}
	_, err := Load(filepath.Join(t.TempDir(), "absent.csv"), 1)
	require.ErrorIs(t, err, os.ErrNotExist)
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
			require.Len(t, append(d.Train.Y, d.Test.Y...), len(rows))
		}
	})
}

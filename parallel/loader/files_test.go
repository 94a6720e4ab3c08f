package loader_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/parallel/loader"
)

// written is a file with that content.
func written(t *testing.T, raw []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.WriteFile(file, raw, 0o600))
	return file
}

func packed(t *testing.T, raw []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(raw)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return out.Bytes()
}

func TestATableComesFromPlainAndCompressedFiles(t *testing.T) {
	raw := []byte("a,b,c\n# a comment\n1,2,3\n\n4, 5e1,-6\n")
	for _, content := range [][]byte{raw, packed(t, raw)} {
		table, err := loader.OpenCSV(written(t, content))
		require.NoError(t, err)
		require.Equal(t, 2, table.Len())
		require.Equal(t, 3, table.Columns)
		require.Equal(t, []int{3, 5}, []int{table.Line(0), table.Line(1)})
		l, err := loader.New(table, same[[]float64], loader.Config{Batch: 2})
		require.NoError(t, err)
		b, err := l.Next(t.Context())
		require.NoError(t, err)
		require.ElementsMatch(t, [][]float64{{1, 2, 3}, {4, 50, -6}}, b.Of)
		require.NoError(t, l.Close())
		_, err = table.At(2)
		require.ErrorIs(t, err, loader.ErrData)
	}
}

func TestABadTableIsNamedWithItsLine(t *testing.T) {
	long := []byte(strings.Repeat("1,2\n", 5000))
	cut := packed(t, long)
	for content, line := range map[string]int{
		"1,2\n3,x\n":              2,
		"1,2\n3,NaN\n":            2,
		"a,b\n\n1,2\n3\n":         4,
		"1,2\n\n3,\"4\n":          3,
		"x\n":                     1,
		"1,2\n+Inf,2\n":           2,
		string(cut[:len(cut)-12]): 5000,
	} {
		file := written(t, []byte(content))
		_, err := loader.OpenCSV(file)
		var bad *loader.FileError
		require.ErrorAs(t, err, &bad, "%.20q", content)
		require.ErrorIs(t, err, loader.ErrData)
		require.Equal(t, file, bad.File)
		require.Equal(t, line, bad.Line, "%.20q: %v", content, err)
	}
	_, err := loader.OpenCSV(filepath.Join(t.TempDir(), "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "absent")
}

func FuzzATableIsReadOrRefused(f *testing.F) {
	f.Add([]byte("a,b\n1,2\n"))
	f.Add([]byte{0x1f, 0x8b, 8, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		table, err := loader.ReadCSV("file", bytes.NewReader(raw))
		if err != nil {
			require.ErrorIs(t, err, loader.ErrData)
			return
		}
		for i := range table.Len() {
			row, err := table.At(i)
			require.NoError(t, err)
			require.Len(t, row, table.Columns)
		}
	})
}

func TestSequencesAreCutFromAFileOfTokens(t *testing.T) {
	for seed := range uint64(80) {
		src := rand.New(rand.NewPCG(seed, 2))
		of := loader.Tokens{Width: 2 + 2*src.IntN(2), Length: 1 + src.IntN(9), Stride: src.IntN(6)}
		all := make([]int32, of.Length+src.IntN(60))
		var raw []byte
		for i := range all {
			if of.Width == 2 {
				all[i] = int32(src.IntN(1 << 16))
				raw = binary.LittleEndian.AppendUint16(raw, uint16(all[i]))
			} else {
				all[i] = src.Int32()
				raw = binary.LittleEndian.AppendUint32(raw, uint32(all[i]))
			}
		}
		var want [][]int32
		stride := of.Stride
		if stride == 0 {
			stride = of.Length
		}
		for at := 0; at+of.Length <= len(all); at += stride {
			want = append(want, all[at:at+of.Length])
		}
		s, err := loader.OpenTokens(written(t, raw), of)
		require.NoError(t, err)
		require.Equal(t, len(want), s.Len(), "seed %d", seed)
		for i := range want {
			got, err := s.At(i)
			require.NoError(t, err)
			require.Equal(t, want[i], got)
		}
		for _, row := range []int{-1, s.Len()} {
			_, err = s.At(row)
			require.ErrorIs(t, err, loader.ErrData)
		}
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
		_, err = s.At(0)
		require.ErrorIs(t, err, loader.ErrClosed)
	}
}

func TestABadFileOfTokensIsNamed(t *testing.T) {
	two := loader.Tokens{Width: 2, Length: 2}
	for text, k := range map[string]struct {
		raw []byte
		of  loader.Tokens
	}{
		"3 bytes; expected tokens of 2":               {make([]byte, 3), two},
		"1 tokens; expected a sequence of 2 at least": {make([]byte, 2), two},
		"0 tokens; expected a sequence of 2 at least": {nil, two},
		"6 bytes; expected tokens of 4":               {make([]byte, 6), loader.Tokens{Width: 4, Length: 1}},
	} {
		file := written(t, k.raw)
		_, err := loader.OpenTokens(file, k.of)
		var bad *loader.FileError
		require.ErrorAs(t, err, &bad, text)
		require.Equal(t, file, bad.File)
		require.ErrorContains(t, err, text)
	}
	s, err := loader.OpenTokens(written(t, []byte{0, 0, 0, 0, 1, 0, 0, 0x80}), loader.Tokens{Width: 4, Length: 2})
	require.NoError(t, err)
	_, err = s.At(0)
	require.ErrorContains(t, err, "token 1 is 2147483649")
	require.NoError(t, s.Close())
	for _, of := range []loader.Tokens{{}, {Width: 3, Length: 1}, {Width: 2}, {Width: 2, Length: 1, Stride: -1}} {
		_, err := loader.OpenTokens(written(t, make([]byte, 8)), of)
		require.ErrorIs(t, err, loader.ErrConfig, fmt.Sprint(of))
	}
	_, err = loader.OpenTokens(t.TempDir(), two)
	require.ErrorIs(t, err, loader.ErrData)
	_, err = loader.OpenTokens(filepath.Join(t.TempDir(), "absent"), two)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestAFileThatBecomesShorterIsAnErrorAndNoCrash(t *testing.T) {
	file := written(t, make([]byte, 1<<16))
	s, err := loader.OpenTokens(file, loader.Tokens{Width: 2, Length: 1 << 10})
	require.NoError(t, err)
	require.NoError(t, os.Truncate(file, 0))
	_, err = s.At(3)
	require.ErrorContains(t, err, "shorter")
	require.ErrorContains(t, err, file)
	require.NoError(t, s.Close())
}

// endless is a table that never ends.
type endless struct{ line int }

func (e *endless) Read(p []byte) (int, error) {
	e.line++
	return copy(p, "1,2\n"), nil
}

func TestATableIsReadInPieces(t *testing.T) {
	table, err := loader.ReadCSV("pieces", io.LimitReader(&endless{}, 4000))
	require.NoError(t, err)
	require.Equal(t, 1000, table.Len())
}

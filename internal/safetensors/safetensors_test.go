package safetensors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func written(t *testing.T, tensors []Tensor, notes map[string]string) []byte {
	var b bytes.Buffer
	require.NoError(t, Write(&b, tensors, notes))
	return b.Bytes()
}

func opened(b []byte) (*File, error) { return Open(bytes.NewReader(b), int64(len(b))) }

// file is a file of a header and some bytes.
func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

func TestAFileIsByteForByteWhatTheFormatSays(t *testing.T) {
	got := written(t, []Tensor{{"w", Info{"F32", []int{2}}, []byte("abcdefgh")}, {"b", Info{"I8", nil}, []byte("x")}}, map[string]string{"step": "7"})
	header := `{"__metadata__":{"step":"7"},"b":{"dtype":"I8","shape":[],"data_offsets":[0,1]},"w":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}}`
	header += strings.Repeat(" ", (8-len(header)%8)%8)
	require.Equal(t, string(file(header, 0))+"xabcdefgh", string(got))
}

func TestRandomTensorsComeBackWholeAndInPieces(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		var tensors []Tensor
		for i := range r.IntN(6) {
			info := Info{[]string{"F64", "F32", "BF16", "I64", "U8", "C64", "F8_E8M0", "F6_E3M2", "F4"}[r.IntN(9)], nil}
			for range r.IntN(4) {
				info.Shape = append(info.Shape, r.IntN(4))
			}
			if strings.HasPrefix(info.DType, "F4") || strings.HasPrefix(info.DType, "F6") {
				info.Shape = append(info.Shape, 4*r.IntN(3)) // whole bytes
			}
			n, err := info.Bytes()
			require.NoError(t, err)
			data := make([]byte, n)
			for j := range data {
				data[j] = byte(r.Uint32())
			}
			tensors = append(tensors, Tensor{fmt.Sprintf("t%d.\"ü", i), info, data})
		}
		b := written(t, tensors, nil)
		r.Shuffle(len(tensors), func(i, j int) { tensors[i], tensors[j] = tensors[j], tensors[i] })
		require.Equal(t, b, written(t, tensors, nil), "the order does not matter")
		f, err := opened(b)
		require.NoError(t, err)
		require.Len(t, f.Names(), len(tensors))
		for _, x := range tensors {
			info, there := f.Info(x.Name)
			require.True(t, there)
			require.Equal(t, x.DType, info.DType)
			require.True(t, slices.Equal(x.Shape, info.Shape))
			from := r.IntN(len(x.Data) + 1)
			part := make([]byte, r.IntN(len(x.Data)-from+1))
			require.NoError(t, f.ReadAt(x.Name, part, int64(from)))
			require.Equal(t, x.Data[from:from+len(part)], part)
			require.ErrorIs(t, f.ReadAt(x.Name, make([]byte, len(x.Data)-from+1), int64(from)), ErrFormat)
		}
	}
}

func TestEveryDTypeOfTheLibraryHasItsSize(t *testing.T) {
	for dtype, bytes := range map[string]int64{"F64": 64, "C64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
		"F8_E8M0": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8} {
		n, err := Info{dtype, []int{4, 2}}.Bytes()
		require.NoError(t, err)
		require.Equal(t, bytes, n, dtype) // as eight elements have as many bytes as one has bits
	}
}

func TestFilesThatCannotBeRightAreRefused(t *testing.T) {
	for name, b := range map[string][]byte{
		"nothing":                     nil,
		"a header beyond the file":    binary.LittleEndian.AppendUint64(nil, 100),
		"a header of 2^63 bytes":      binary.LittleEndian.AppendUint64(nil, 1<<63),
		"no object":                   file(`[]`, 0),
		"an object after a space":     file(` {}`, 0),
		"half an object":              file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}`, 4),
		"something after the header":  file(`{} x`, 0),
		"an unknown dtype":            file(`{"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}`, 4),
		"half a byte":                 file(`{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}}`, 1),
		"a negative dimension":        file(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, 4),
		"a product that overflows":    file(`{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}`, 0),
		"offsets unlike the shape":    file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 4),
		"a gap":                       file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2),
		"an overlap":                  file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3),
		"bytes of no tensor":          file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 2),
		"a tensor beyond the file":    file(`{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}`, 2),
		"one name twice":              file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2),
		"notes that are no texts":     file(`{"__metadata__":{"a":1}}`, 0),
		"offsets that are no numbers": file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":["0",1]}}`, 1),
	} {
		_, err := opened(b)
		require.ErrorIs(t, err, ErrFormat, name)
	}
}

func TestTensorsThatNoFileCanHoldAreRefused(t *testing.T) {
	one := Tensor{"a", Info{"U8", []int{1}}, []byte{1}}
	for name, tensors := range map[string][]Tensor{
		"twice":        {one, one},
		"wrong length": {{"a", Info{"U8", []int{2}}, []byte{1}}},
		"wrong dtype":  {{"a", Info{"u8", []int{1}}, []byte{1}}},
		"reserved":     {{metadata, Info{"U8", []int{1}}, []byte{1}}},
	} {
		require.ErrorIs(t, Write(&bytes.Buffer{}, tensors, nil), ErrFormat, name)
	}
}

func FuzzArbitraryBytesAreAFileOrAnErrorAndTakeNoMoreMemoryThanTheyAre(f *testing.F) {
	var b bytes.Buffer
	_ = Write(&b, []Tensor{{"w", Info{"F32", []int{2}}, []byte("abcdefgh")}}, map[string]string{"a": "b"})
	f.Add(b.Bytes())
	f.Add(file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := opened(b)
		if err != nil {
			return
		}
		var tensors []Tensor
		for _, name := range file.Names() {
			info, _ := file.Info(name)
			n, err := info.Bytes()
			require.NoError(t, err)
			require.LessOrEqual(t, n, int64(len(b)))
			data := make([]byte, n)
			require.NoError(t, file.ReadAt(name, data, 0))
			tensors = append(tensors, Tensor{name, info, data})
		}
		again, err := opened(written(t, tensors, file.Notes))
		require.NoError(t, err)
		require.Equal(t, file.Names(), again.Names())
	})
}

//go:build interop

package interop

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/checkpoint"
	weft "github.com/weft-project/weft/store"
)

var tensorPython = flag.String("safetensors", "", "an interpreter that has safetensors; default that of -python, and where it has none the test reads and writes the format itself")

// theirTensor is one that tensors.py tells of.
type theirTensor struct {
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
	Data  string `json:"data"`
}

// told is what tensors.py says.
type told struct {
	With    string
	Tensors map[string]theirTensor
	DTypes  []string
}

// tensors runs tensors.py.
func tensors(t *testing.T, what, path string, given map[string]theirTensor) told {
	t.Helper()
	interpreter := *tensorPython
	if interpreter == "" {
		interpreter = *python
	}
	in, err := json.Marshal(given)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), interpreter, filepath.Join("testdata", "tensors.py"), what, path)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	var says told
	require.NoError(t, json.Unmarshal(out, &says))
	t.Logf("%s with %s", what, says.With)
	return says
}

// bits are those of an element.
var bits = map[string]int{"C64": 64, "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F8_E8M0": 8, "F4": 4,
	"I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8}

// randomTensors has some of each dtype that the library writes. Shapes are odd where an element has
// whole bytes.
func randomTensors(t *testing.T) map[string]theirTensor {
	t.Helper()
	known := tensors(t, "dtypes", "-", nil).DTypes
	require.Subset(t, known, []string{"F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL"})
	t.Log(known)
	r, all := rand.New(rand.NewPCG(1, 2)), map[string]theirTensor{}
	for _, dtype := range known {
		shapes := [][]int{{4}, {4, 2}, {0, 2}, {2, 1, 6}}
		if bits[dtype]%8 == 0 {
			shapes = append(shapes, []int{}, []int{3}, []int{0, 5}, []int{2, 1, 3})
		}
		for i, shape := range shapes {
			n := bits[dtype]
			for _, d := range shape {
				n *= d
			}
			b := make([]byte, n/8)
			for j := range b {
				if b[j] = byte(r.Uint32()); dtype == "BOOL" {
					b[j] &= 1
				}
			}
			all[fmt.Sprintf("layer.%d.%s \"ü", i, dtype)] = theirTensor{dtype, shape, hex.EncodeToString(b)}
		}
	}
	return all
}

func TestPythonsLibraryReadsWhatACheckpointWrote(t *testing.T) {
	want, dir := randomTensors(t), t.TempDir()
	d, err := checkpoint.Open(dir, checkpoint.Config{})
	require.NoError(t, err)
	const world = 2
	st, parts := weft.NewMemory(), make([]checkpoint.Part, world)
	for rank := range parts {
		parts[rank] = checkpoint.Part{Step: 7, Rank: rank, World: world, Store: st, Notes: map[string]string{"a": "b"}}
	}
	for name, x := range want {
		b, err := hex.DecodeString(x.Data)
		require.NoError(t, err)
		whole := checkpoint.Piece{Name: name, DType: x.DType, Shape: x.Shape, Data: b}
		if len(x.Shape) == 0 || x.Shape[0] < 4 {
			parts[len(name)%world].Pieces = append(parts[len(name)%world].Pieces, whole)
			continue
		}
		upper, lower := whole, whole // of a tensor that is cut each file has rows
		upper.Data, lower.Data, lower.Begin = b[:len(b)/2], b[len(b)/2:], x.Shape[0]/2
		parts[0].Pieces, parts[1].Pieces = append(parts[0].Pieces, upper), append(parts[1].Pieces, lower)
	}
	errs := make([]error, world)
	var saves sync.WaitGroup
	for rank, p := range parts {
		saves.Go(func() { errs[rank] = d.Save(t.Context(), p) })
	}
	saves.Wait()
	require.NoError(t, errors.Join(errs...))
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.safetensors"))
	require.NoError(t, err)
	require.Len(t, files, world)
	for rank, file := range files {
		got := tensors(t, "load", file, nil).Tensors
		require.Len(t, got, len(parts[rank].Pieces))
		for _, p := range parts[rank].Pieces {
			name, shape := p.Name, slices.Clone(p.Shape)
			if len(shape) > 0 && shape[0] == 4 {
				name, shape[0] = fmt.Sprintf("%s@%d", p.Name, p.Begin), 2
			}
			require.Equal(t, theirTensor{p.DType, append([]int{}, shape...), hex.EncodeToString(p.Data)}, got[name], name)
		}
	}
}

func TestWhatPythonsLibraryWroteIsRead(t *testing.T) {
	want, path := randomTensors(t), filepath.Join(t.TempDir(), "theirs.safetensors")
	tensors(t, "save", path, want)
	k, err := checkpoint.OpenFile(path)
	require.NoError(t, err)
	defer k.Close()
	require.Len(t, k.Names(), len(want))
	require.Contains(t, k.Notes["by"], "safetensors")
	for name, x := range want {
		got, err := k.Read(name)
		require.NoError(t, err)
		require.Equal(t, x, theirTensor{got.DType, append([]int{}, got.Shape...), hex.EncodeToString(got.Data)}, name)
	}
}

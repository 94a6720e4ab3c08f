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

// tensors runs tensors.py.
func tensors(t *testing.T, what, path string, given map[string]theirTensor) map[string]theirTensor {
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
	var told struct {
		With    string
		Tensors map[string]theirTensor
	}
	require.NoError(t, json.Unmarshal(out, &told))
	t.Logf("%s with %s", what, told.With)
	return told.Tensors
}

// randomTensors has one of each dtype, and some of odd shapes.
func randomTensors() map[string]theirTensor {
	r, all := rand.New(rand.NewPCG(1, 2)), map[string]theirTensor{}
	for dtype, size := range map[string]int{"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1} {
		for i, shape := range [][]int{{}, {3}, {4, 2}, {0, 5}, {2, 1, 3}} {
			n := size
			for _, d := range shape {
				n *= d
			}
			b := make([]byte, n)
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
	want, dir := randomTensors(), t.TempDir()
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
		got := tensors(t, "load", file, nil)
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
	want, path := randomTensors(), filepath.Join(t.TempDir(), "theirs.safetensors")
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

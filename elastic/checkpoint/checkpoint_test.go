package checkpoint

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/store"
)

func dir(t *testing.T, cfg Config) *Dir {
	d, err := Open(filepath.Join(t.TempDir(), "checkpoints"), cfg)
	require.NoError(t, err)
	return d
}

func tensor(name string, value byte) Piece {
	return Piece{Name: name, DType: "U8", Shape: []int{4, 2}, Data: []byte{value, 1, 2, 3, 4, 5, 6, 7}}
}

// cut gives each of world workers its rows of a tensor.
func cut(x Piece, rank, world int) Piece {
	rows := rowsOf(x.Shape)
	row := len(x.Data) / max(rows, 1)
	from, to := rank*rows/world, (rank+1)*rows/world
	return Piece{Name: x.Name, DType: x.DType, Shape: x.Shape, Begin: from, Data: x.Data[from*row : to*row]}
}

// together has every rank save its part.
func together(d *Dir, parts []Part) error {
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, p := range parts {
		wg.Go(func() { errs[i] = d.Save(context.Background(), p) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func TestWhatWasSavedByAnyNumberOfWorkersIsReadByAnyNumber(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		d, st, world := dir(t, Config{}), store.NewMemory(), 1+r.IntN(4)
		parts := make([]Part, world)
		for i := range parts {
			parts[i] = Part{Step: int64(seed), Rank: i, World: world, Store: st, Notes: map[string]string{"seed": fmt.Sprint(seed)}}
		}
		var all []Piece
		for i := range 1 + r.IntN(5) {
			x := Piece{Name: fmt.Sprint("t", i), DType: []string{"U8", "F32", "F64"}[r.IntN(3)]}
			n := map[string]int{"U8": 1, "F32": 4, "F64": 8}[x.DType]
			for range r.IntN(3) {
				x.Shape = append(x.Shape, r.IntN(9))
				n *= x.Shape[len(x.Shape)-1]
			}
			x.Data = make([]byte, n)
			for j := range x.Data {
				x.Data[j] = byte(r.Uint32())
			}
			all = append(all, x)
			whole := r.IntN(world)
			for rank := range parts {
				if len(x.Shape) > 0 && i%2 == 0 {
					parts[rank].Pieces = append(parts[rank].Pieces, cut(x, rank, world))
				} else if rank == whole {
					parts[rank].Pieces = append(parts[rank].Pieces, x)
				}
			}
		}
		require.NoError(t, together(d, parts), "seed %d", seed)
		k, err := d.Latest()
		require.NoError(t, err)
		require.Equal(t, int64(seed), k.Step)
		require.Equal(t, parts[0].Notes, k.Notes)
		require.Len(t, k.Names(), len(all))
		readers := 1 + r.IntN(5)
		for _, x := range all {
			for rank := range readers {
				want := x
				var got Piece
				if len(x.Shape) == 0 {
					got, err = k.Read(x.Name)
				} else {
					want = cut(x, rank, readers)
					got, err = k.ReadRows(x.Name, want.Begin, (rank+1)*x.Shape[0]/readers-want.Begin)
				}
				require.NoError(t, err, "seed %d: %+v", seed, x)
				require.Equal(t, want.Data, append(make([]byte, 0), got.Data...), "seed %d: %s", seed, x.Name)
				require.Equal(t, x.DType, got.DType)
			}
		}
		require.NoError(t, k.Close())
	}
}

// Of elements of four bits, rows of three are cut where two of them end.
func TestRowsOfElementsSmallerThanAByteAreReadAndCutWhereAByteBegins(t *testing.T) {
	d, st := dir(t, Config{}), store.NewMemory()
	x := Piece{Name: "w", DType: "F4", Shape: []int{4, 3}, Data: []byte("abcdef")}
	lower := x
	x.Data, lower.Data, lower.Begin = x.Data[:3], []byte("def"), 2
	flat := Piece{Name: "flat", DType: "F4", Shape: []int{4}, Data: []byte("gh")}
	require.NoError(t, together(d, []Part{{World: 2, Store: st, Pieces: []Piece{x, flat}}, {Rank: 1, World: 2, Store: st, Pieces: []Piece{lower}}}))
	k, err := d.Latest()
	require.NoError(t, err)
	defer k.Close()
	for _, c := range []struct {
		name        string
		begin, rows int
		want        string
	}{{"w", 0, 4, "abcdef"}, {"w", 2, 2, "def"}, {"w", 0, 2, "abc"}, {"w", 2, 0, ""}, {"flat", 0, 4, "gh"}, {"flat", 2, 2, "h"}} {
		got, err := k.ReadRows(c.name, c.begin, c.rows)
		require.NoError(t, err, "%+v", c)
		require.Equal(t, c.want, string(got.Data), "%+v", c)
	}
	for _, c := range [][2]int{{1, 1}, {0, 1}, {1, 2}, {3, 1}} {
		_, err := k.ReadRows("w", c[0], c[1])
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, "no whole number of bytes")
	}
	lower.Begin, lower.Data = 1, []byte("bcd")
	require.ErrorIs(t, d.Save(t.Context(), Part{Step: 1, Pieces: []Piece{lower}}), ErrInvalid)
}

func TestOnlyTheNewestStayAndWhatIsHalfThereGoesWithThem(t *testing.T) {
	d := dir(t, Config{Keep: 2})
	require.NoError(t, os.MkdirAll(filepath.Join(d.path, "step-000000000002.0"), 0o755)) // one that somebody died over
	require.NoError(t, os.MkdirAll(filepath.Join(d.path, "somebody's own"), 0o755))
	for step := range int64(5) {
		require.NoError(t, d.Save(t.Context(), Part{Step: step, Pieces: []Piece{tensor("a", byte(step))}}))
	}
	steps, err := d.Steps()
	require.NoError(t, err)
	require.Equal(t, []int64{4, 3}, steps)
	entries, err := os.ReadDir(d.path)
	require.NoError(t, err)
	require.Len(t, entries, 3)
	k, err := d.At(3)
	require.NoError(t, err)
	defer k.Close()
	x, err := k.Read("a")
	require.NoError(t, err)
	require.Equal(t, byte(3), x.Data[0])
	_, err = d.At(1)
	require.ErrorIs(t, err, ErrNone)
}

func TestAStepThatIsSavedAgainLeavesTheOldOneWholeUntilTheNewOneIs(t *testing.T) {
	d := dir(t, Config{Keep: 1})
	require.NoError(t, d.Save(t.Context(), Part{Step: 7, Pieces: []Piece{tensor("a", 1)}}))
	d.sync = func(*os.File) error { return errors.New("the disk is full") }
	require.ErrorContains(t, d.Save(t.Context(), Part{Step: 7, Pieces: []Piece{tensor("a", 2)}}), "the disk is full")
	k, err := d.Latest()
	require.NoError(t, err)
	x, err := k.Read("a")
	require.NoError(t, err)
	require.Equal(t, byte(1), x.Data[0])
	require.NoError(t, k.Close())
	d.sync = (*os.File).Sync
	require.NoError(t, d.Save(t.Context(), Part{Step: 7, Pieces: []Piece{tensor("a", 3)}}))
	k, err = d.Latest()
	require.NoError(t, err)
	defer k.Close()
	x, err = k.Read("a")
	require.NoError(t, err)
	require.Equal(t, byte(3), x.Data[0])
}

func TestOneWorkersFailureIsAnErrorForAllAndLeavesNoCheckpoint(t *testing.T) {
	synctest.Test(t, oneFailure)
}

func oneFailure(t *testing.T) {
	for name, spoil := range map[string]func(parts []Part){
		"rows that nobody has":    func(p []Part) { p[1].Pieces = nil },
		"a tensor of two shapes":  func(p []Part) { p[1].Pieces[0].Shape = []int{5, 2} },
		"a cancelled worker":      nil,
		"a tensor that is two":    func(p []Part) { p[1].Pieces = append(p[1].Pieces, p[1].Pieces[0]) },
		"rank 0 has it twice too": func(p []Part) { p[0].Pieces = append(p[0].Pieces, p[0].Pieces[0]) },
	} {
		d, st := dir(t, Config{}), store.NewMemory()
		var parts []Part
		for rank := range 3 {
			parts = append(parts, Part{Step: 1, Rank: rank, World: 3, Store: st, Pieces: []Piece{cut(tensor("a", 9), rank, 3)}})
		}
		errs := make([]error, 3)
		var wg sync.WaitGroup
		for i := range parts {
			bounded, stop := context.WithTimeout(t.Context(), 10*time.Second)
			defer stop()
			c, cancel := context.WithCancelCause(bounded)
			defer cancel(nil)
			if spoil == nil && i == 0 {
				cancel(errors.New("changed my mind"))
			}
			if spoil != nil && i == 0 {
				spoil(parts)
			}
			wg.Go(func() {
				errs[i] = d.Save(c, parts[i])
			})
		}
		wg.Wait()
		for rank, err := range errs {
			require.Error(t, err, "%s: rank %d", name, rank)
		}
		_, err := d.Latest()
		require.ErrorIs(t, err, ErrNone, name)
	}
}

func TestWhatIsSavedBesideOtherWorkIsWhatItWasWhenThatBegan(t *testing.T) {
	d := dir(t, Config{})
	x := tensor("a", 1)
	p, err := d.Start(t.Context(), Part{Step: 1, Pieces: []Piece{x}})
	require.NoError(t, err)
	x.Data[0] = 2
	q, err := d.Start(t.Context(), Part{Step: 2, Pieces: []Piece{x}})
	require.NoError(t, err)
	x.Data[0] = 3
	require.NoError(t, q.Wait())
	require.NoError(t, p.Wait())
	require.NoError(t, p.Wait())
	for step, want := range map[int64]byte{1: 1, 2: 2} {
		k, err := d.At(step)
		require.NoError(t, err)
		got, err := k.Read("a")
		require.NoError(t, err)
		require.Equal(t, want, got.Data[0])
		require.NoError(t, k.Close())
	}
}

func TestAFileThatWasCutOrChangedAnywhereIsRefusedByItsName(t *testing.T) {
	d := dir(t, Config{})
	require.NoError(t, d.Save(t.Context(), Part{Step: 1, Pieces: []Piece{tensor("a", 1), tensor("b", 2)}, Notes: map[string]string{"note": "x"}}))
	folder := filepath.Join(d.path, "step-000000000001.0")
	names, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, names, 2)
	readAll := func() error {
		k, err := d.Latest()
		if err != nil {
			return err
		}
		defer k.Close()
		for i, name := range []string{"a", "b"} {
			x, err := k.Read(name)
			if err != nil {
				return err
			}
			require.Equal(t, tensor(name, byte(i+1)).Data, x.Data, "wrong bytes were read without an error")
		}
		return nil
	}
	require.NoError(t, readAll())
	for _, e := range names {
		path := filepath.Join(folder, e.Name())
		good, err := os.ReadFile(path)
		require.NoError(t, err)
		for at := range good {
			for _, b := range [][]byte{good[:at], append(append([]byte{}, good[:at]...), append([]byte{good[at] ^ 0x10}, good[at+1:]...)...)} {
				require.NoError(t, os.WriteFile(path, b, 0o644))
				err := readAll()
				require.ErrorIs(t, err, ErrCorrupt, "%s: at %d of %d, %d bytes are left", e.Name(), at, len(good), len(b))
				require.ErrorContains(t, err, e.Name())
			}
		}
		require.NoError(t, os.WriteFile(path, good, 0o644))
	}
	require.NoError(t, readAll())
}

func TestAFileOfAnybodysIsReadAndOneThatIsNoneIsRefusedByItsName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.safetensors")
	header := `{"w":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"__metadata__":{"by":"somebody"}}`
	b := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header+"abcdefgh"...)
	require.NoError(t, os.WriteFile(path, b, 0o644))
	k, err := OpenFile(path)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"by": "somebody"}, k.Notes)
	got, err := k.ReadRows("w", 1, 1)
	require.NoError(t, err)
	require.Equal(t, Piece{Name: "w", DType: "F32", Shape: []int{2, 1}, Begin: 1, Data: []byte("efgh")}, got)
	require.NoError(t, k.Close())
	for _, bad := range [][]byte{nil, b[:len(b)-1], append(b, 0)} {
		require.NoError(t, os.WriteFile(path, bad, 0o644))
		_, err = OpenFile(path)
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, path)
	}
}

// A manifest that somebody has made for evil, with a checksum that is right.
func FuzzAManifestThatPassesTakesNoMoreMemoryThanItsFilesAre(f *testing.F) {
	shard := func(pieces string) []byte {
		return []byte(`{"version":1,"step":3,"shards":[{"file":"a","bytes":64,"pieces":[` + pieces + `]}]}` + "\n")
	}
	const half = `{"key":"w@0","name":"w","dtype":"F32","shape":[4,2],"begin":0,"rows":2}`
	for _, pieces := range []string{"", half, half + `,{"key":"w@2","name":"w","dtype":"F32","shape":[4,2],"begin":2,"rows":2}`,
		`{"name":"w","dtype":"U8","shape":[9223372036854775807,0],"begin":9223372036854775807,"rows":9223372036854775807}`,
		`{"name":"w","dtype":"U8","shape":[4611686018427387904],"begin":0,"rows":4611686018427387904}`, `{"name":"s","dtype":"F64","shape":[],"rows":1}`} {
		f.Add(shard(pieces))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(fmt.Appendf(b, "crc32c %08x\n", sum(b)))
		if err != nil {
			return
		}
		k, has := &Checkpoint{shards: m.Shards, tensors: map[string][]source{}}, int64(0)
		for i, s := range m.Shards {
			require.Equal(t, s.File, filepath.Base(s.File))
			if has += s.Bytes; has < 0 {
				return // more than any disk has
			}
			for _, p := range s.Pieces {
				k.tensors[p.Name] = append(k.tensors[p.Name], source{piece: p, shard: i})
			}
		}
		for _, name := range k.Names() {
			shape, dtype, err := k.Shape(name)
			require.NoError(t, err)
			n, err := (piece{DType: dtype, Shape: shape, Rows: rowsOf(shape)}).info().Bytes()
			require.NoError(t, err)
			require.LessOrEqual(t, n, has)
		}
	})
}

func TestPartsThatCannotBeAreReportedWhole(t *testing.T) {
	err := dir(t, Config{}).Save(t.Context(), Part{Step: -1, Rank: 3, World: 2, Pieces: []Piece{
		{Name: "x", DType: "F32", Shape: []int{2}, Data: make([]byte, 3)}, {Name: "y", DType: "F31"}, {Name: "z", DType: "U8", Shape: []int{2}, Begin: 1, Data: make([]byte, 2)}}})
	require.ErrorIs(t, err, ErrInvalid)
	for _, part := range []string{"step", "rank", "Store", `"x": 3 bytes`, `"y"`, `"z": rows 1 to 3 of 2`} {
		require.True(t, strings.Contains(err.Error(), part), "%s is not in %v", part, err)
	}
	_, err = Open("", Config{Keep: -1})
	require.ErrorIs(t, err, ErrInvalid)
}

package checkpoint

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/store"
)

// Workers come to a save one after the other, in every order; whoever comes last hears, too, why
// there is no checkpoint.
func TestAllHearOfAFailureWhoeverComesLastAndMaySaveAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const world = 3
		full := func(*os.File) error { return errors.New("the disk is full") }
		for name, spoil := range map[string]func(d *Dir, own []*Dir, parts []Part){
			"no folder can be made": func(_ *Dir, own []*Dir, _ []Part) { own[0].path = filepath.Join(own[0].path, "file", "below") },
			"rank 0's disk is full": func(_ *Dir, own []*Dir, _ []Part) { own[0].sync = full },
			"rank 1's disk is full": func(_ *Dir, own []*Dir, _ []Part) { own[1].sync = full },
			"rank 2's part is bad":  func(_ *Dir, _ []*Dir, p []Part) { p[2].Pieces[0].DType = "F31" },
		} {
			for first := range world {
				d, st := dir(t, Config{}), store.NewMemory()
				require.NoError(t, os.MkdirAll(d.path, 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(d.path, "file"), nil, 0o644))
				own, parts, errs := make([]*Dir, world), make([]Part, world), make([]error, world)
				for rank := range parts {
					var err error
					own[rank], err = Open(d.path, Config{})
					require.NoError(t, err)
					parts[rank] = Part{Step: 1, Rank: rank, World: world, Store: st, Pieces: []Piece{cut(tensor("a", 9), rank, world)}}
				}
				spoil(d, own, parts)
				c, cancel := context.WithTimeout(t.Context(), time.Hour)
				var wg sync.WaitGroup
				for i := range world {
					rank := (first + i) % world
					wg.Go(func() { errs[rank] = own[rank].Save(c, parts[rank]) })
					time.Sleep(time.Second)
				}
				wg.Wait()
				for rank, err := range errs {
					require.Error(t, err, "%s: rank %d", name, rank)
					require.NotErrorIs(t, err, context.DeadlineExceeded, "%s, from %d: rank %d", name, first, rank)
				}
				for rank := range parts {
					own[rank] = d
					parts[rank].Pieces = []Piece{cut(tensor("a", 9), rank, world)}
				}
				require.NoError(t, together(d, parts), name)
				keys, err := st.ListKeys(c)
				require.NoError(t, err)
				for _, key := range keys { // who failed by itself does not wait for the end
					require.Regexp(t, `/(end|heard)$`, key, "%s: %v", name, keys)
				}
				cancel()
			}
		}
	})
}

func TestASaveLeavesNothingInTheStore(t *testing.T) {
	d, st := dir(t, Config{}), store.NewMemory()
	for step := range int64(3) {
		var parts []Part
		for rank := range 3 {
			parts = append(parts, Part{Step: step, Rank: rank, World: 3, Store: st, Pieces: []Piece{cut(tensor("a", 9), rank, 3)}})
		}
		require.NoError(t, together(d, parts))
	}
	n, err := st.NumKeys(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
}

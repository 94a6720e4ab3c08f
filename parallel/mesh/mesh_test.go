package mesh_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/parallel/internal/grouptest"
	"github.com/weft-project/weft/parallel/mesh"
)

func TestEachRankHasOnePlaceAndEachPlaceOneRank(t *testing.T) {
	src := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		m := mesh.Mesh{Pipeline: src.IntN(4), Data: src.IntN(4), Tensor: src.IntN(4)}
		p, d, n := max(m.Pipeline, 1), max(m.Data, 1), max(m.Tensor, 1)
		require.Equal(t, p*d*n, m.Size())
		rank := 0
		for i := range p {
			for j := range d {
				for k := range n {
					at := mesh.Place{Pipeline: i, Data: j, Tensor: k}
					require.Equal(t, at, m.Place(rank))
					require.Equal(t, rank, m.Rank(at))
					rank++
				}
			}
		}
	}
}

// ranksOf are the members of a group by their ranks in the job.
func ranksOf(g *collective.Group) (all []int) {
	if g == nil {
		return nil
	}
	for _, m := range g.Members() {
		all = append(all, m.WorkerRank)
	}
	return all
}

// alike are the ranks whose places agree with that of a rank, as same says.
func alike(m mesh.Mesh, rank int, same func(a, b mesh.Place) bool) (all []int) {
	for r := range m.Size() {
		if same(m.Place(r), m.Place(rank)) {
			all = append(all, r)
		}
	}
	return all
}

func TestGroupsAreTheLinesOfTheMesh(t *testing.T) {
	for _, m := range []mesh.Mesh{{Pipeline: 2, Data: 2, Tensor: 2}, {Data: 6, Shard: 2}, {Data: 2, Shard: 1}, {Pipeline: 3}, {Tensor: 2}, {}} {
		t.Run(fmt.Sprintf("%+v", m), func(t *testing.T) {
			w := grouptest.New(t, m.Size())
			all := make([]*mesh.Groups, m.Size())
			w.Each(func(r int) (err error) {
				all[r], err = m.Open(t.Context(), w.Gs[r])
				return err
			})
			for r := range all {
				requireLines(t, m, r, all[r])
			}
			w.Each(func(r int) error { return all[r].Close() })
		})
	}
}

func requireLines(t *testing.T, m mesh.Mesh, r int, gs *mesh.Groups) {
	t.Helper()
	require.Equal(t, m.Place(r), gs.Place)
	line := func(a, b mesh.Place) bool { return a.Pipeline == b.Pipeline && a.Tensor == b.Tensor }
	require.Equal(t, alike(m, r, func(a, b mesh.Place) bool { return a.Data == b.Data && a.Tensor == b.Tensor }), ranksOf(gs.Pipeline))
	require.Equal(t, alike(m, r, line), ranksOf(gs.Data))
	require.Equal(t, alike(m, r, func(a, b mesh.Place) bool { return a.Data == b.Data && a.Pipeline == b.Pipeline }), ranksOf(gs.Tensor))
	if m.Shard == 0 {
		require.Same(t, gs.Data, gs.Shard)
		require.Nil(t, gs.Across)
		return
	}
	require.Equal(t, alike(m, r, func(a, b mesh.Place) bool { return line(a, b) && a.Data/m.Shard == b.Data/m.Shard }), ranksOf(gs.Shard))
	require.Equal(t, alike(m, r, func(a, b mesh.Place) bool { return line(a, b) && a.Data%m.Shard == b.Data%m.Shard }), ranksOf(gs.Across))
}

func TestAMeshThatCannotBeIsToldToAll(t *testing.T) {
	w := grouptest.New(t, 4)
	for _, k := range []struct {
		of   func(r int) mesh.Mesh
		says []string
	}{
		{func(int) mesh.Mesh { return mesh.Mesh{Data: 3} }, []string{"Pipeline 1 × Data 3 × Tensor 1 is 3; expected 4, the number of workers, as with Data 4"}},
		{func(int) mesh.Mesh { return mesh.Mesh{Pipeline: 3} }, []string{"expected 4, the number of workers, which Pipeline × Tensor, 3, does not divide"}},
		{func(int) mesh.Mesh { return mesh.Mesh{Data: 4, Shard: 3} }, []string{"Shard is 3", "which is 4"}},
		{func(int) mesh.Mesh { return mesh.Mesh{Data: 2, Shard: 3, Tensor: 1} }, []string{"Shard is 3", "expected 4, the number of workers"}},
		{func(int) mesh.Mesh { return mesh.Mesh{Pipeline: -1, Tensor: 1 << 62} }, []string{"Pipeline is -1", "Tensor is"}},
		{func(r int) mesh.Mesh { return mesh.Mesh{Data: 4 / (1 + r/3), Tensor: 1 + r/3} }, []string{"rank 3", w.Ws[3].Name()}},
	} {
		for r, err := range w.Attempt(func(r int) error {
			_, err := k.of(r).Open(t.Context(), w.Gs[r])
			return err
		}) {
			require.ErrorIs(t, err, mesh.ErrMesh, "rank %d", r)
			for _, text := range k.says {
				require.ErrorContains(t, err, text)
			}
		}
	}
}

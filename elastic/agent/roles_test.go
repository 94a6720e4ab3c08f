package agent

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/soak"
)

// placed gives the nodes of a round their places, in the order of the nodes.
func placed(t *testing.T, nodes []rdzv.Node) []rdzv.Placement {
	t.Helper()
	cfg := rdzv.Config{Min: len(nodes)}
	state, err := rdzv.NewState(cfg)
	require.NoError(t, err)
	out, got := make([]rdzv.Placement, len(nodes)), 0
	for i := range nodes {
		nodes[i].ID = "n" + strconv.Itoa(i)
		actions, why := state.Decide(rdzv.Event{Kind: rdzv.Join, Node: nodes[i], Config: cfg}, at(0))
		for _, a := range actions {
			require.Equal(t, rdzv.Place, a.Kind, why)
			n, err := strconv.Atoi(a.ID[1:])
			require.NoError(t, err)
			out[n] = a.Placement
			got++
		}
	}
	require.Equal(t, len(nodes), got)
	return out
}

// environmentOf is what one worker is told of its place.
func environmentOf(role string, p rdzv.Placement, localRank int) map[string]string {
	s := Spec{Role: role, NprocPerNode: p.Slots, Env: []string{}}.populate()
	return parseEnv(s.environ(localRank, p, "127.0.0.1:1", "", false))
}

func TestRanksRunAcrossRolesAndRoleRanksWithinThemAsInPyTorchsTableOfFiveAgents(t *testing.T) {
	nodes := []rdzv.Node{{Role: "ps", Slots: 4, Want: 1}, {Role: "trainer", Slots: 1, Want: 2}, {Role: "trainer", Slots: 2, Want: 3}, {Role: "trainer", Slots: 3, Want: 4}, {Role: "ps", Slots: 5, Want: 5}}
	want := []struct{ ranks, roleRanks []int }{
		{[]int{0, 1, 2, 3}, []int{0, 1, 2, 3}}, {[]int{4}, []int{0}}, {[]int{5, 6}, []int{1, 2}}, {[]int{7, 8, 9}, []int{3, 4, 5}}, {[]int{10, 11, 12, 13, 14}, []int{4, 5, 6, 7, 8}},
	}
	for n, p := range placed(t, nodes) {
		for local, rank := range want[n].ranks {
			env := environmentOf(nodes[n].Role, p, local)
			for k, v := range map[string]int{
				"RANK": rank, "WORLD_SIZE": 15, "ROLE_RANK": want[n].roleRanks[local], "ROLE_WORLD_SIZE": map[string]int{"ps": 9, "trainer": 6}[nodes[n].Role],
				"GROUP_RANK": n, "GROUP_WORLD_SIZE": 5, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": len(want[n].ranks),
			} {
				require.Equal(t, strconv.Itoa(v), env[k], "%s of node %d, local rank %d", k, n, local)
			}
			require.Equal(t, nodes[n].Role, env["ROLE_NAME"])
		}
	}
}

func TestFiveAgentsOfFourWorkersEachHaveTwentyRanks(t *testing.T) {
	nodes := slices.Repeat([]rdzv.Node{{Role: "trainer", Slots: 4}}, 5)
	for n, p := range placed(t, nodes) {
		for local := range 4 {
			env := environmentOf("trainer", p, local)
			for _, k := range []string{"RANK", "ROLE_RANK"} {
				require.Equal(t, strconv.Itoa(4*n+local), env[k])
			}
			for _, k := range []string{"WORLD_SIZE", "ROLE_WORLD_SIZE"} {
				require.Equal(t, "20", env[k])
			}
		}
	}
}

func TestRanksOfAnyNodesAreConsecutivePerNodeAndCompleteInTheWorldAndInEachRole(t *testing.T) {
	for seed := range uint64(soak.Cases(200)) {
		r := rand.New(rand.NewPCG(seed, 11))
		nodes := make([]rdzv.Node, 1+r.IntN(8))
		for i := range nodes {
			nodes[i] = rdzv.Node{Role: []string{"master", "trainer", "ps"}[r.IntN(3)], Slots: 1 + r.IntN(8)}
		}
		ranks, roleRanks, sizes := []int{}, map[string][]int{}, map[string]int{}
		for n, p := range placed(t, nodes) {
			require.Equal(t, nodes[n].Slots, p.Slots)
			for local := range p.Slots {
				ranks = append(ranks, p.First+local)
				roleRanks[nodes[n].Role] = append(roleRanks[nodes[n].Role], p.RoleFirst+local)
			}
			sizes[nodes[n].Role] = p.RoleWorld
			sizes[""] = p.World
		}
		complete := func(got []int, size int, what string) {
			slices.Sort(got)
			require.Len(t, got, size, "seed %d, %s", seed, what)
			for i, rank := range got {
				require.Equal(t, i, rank, "seed %d, %s", seed, what)
			}
		}
		complete(ranks, sizes[""], "the world")
		for role, got := range roleRanks {
			complete(got, sizes[role], role)
		}
	}
}

func TestNodesOfDifferentRolesRunWorkersOfOneWorld(t *testing.T) {
	t.Parallel()
	w := newCrew(t, "role", 1, func(s *Spec) { s.MinNodes = 3 })
	for n, node := range []rdzv.Node{{Role: "ps", Slots: 1}, {Role: "trainer", Slots: 1}, {Role: "trainer", Slots: 2}} {
		w.spec.Role, w.spec.NprocPerNode, w.spec.WantRank = node.Role, node.Slots, n+1
		w.start(n)
	}
	w.runs.Wait()
	require.Equal(t, map[int]error{0: nil, 1: nil, 2: nil}, w.ends, w.out.String())
	for rank, role := range []string{"ps 0 of 1", "trainer 0 of 3", "trainer 1 of 3", "trainer 2 of 3"} {
		require.Contains(t, w.out.String(), fmt.Sprintf("[%d] %s in 4\n", rank, role))
	}
}

package store

import (
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/store/internal/talktest"
)

// bothWays is a member's client and a guest's of one server.
func bothWays(t *testing.T, s *Server, trusts *tls.Config) (member, guest *Client) {
	t.Helper()
	member, err := Dial(t.Context(), ClientConfig{Addr: s.Addr(), TLS: trusts})
	require.NoError(t, err)
	t.Cleanup(func() { member.Close() })
	return member, joined(t, s)
}

// The oracle is two stores that have nothing to do with one another.
func TestMembersAndGuestsHaveKeysOfTheirOwn(t *testing.T) {
	leak.Check(t)
	server, trusts := talktest.Identity(t)
	for seed := range uint64(soak.Cases(4)) {
		s, err := Serve(ServerConfig{TLS: server})
		require.NoError(t, err)
		member, guest := bothWays(t, s, trusts)
		rnd := rand.New(rand.NewPCG(seed, 18))
		ends := [2][2]Store{{member, NewMemory()}, {guest, NewMemory()}}
		for step := range 60 {
			end, key := ends[rnd.IntN(2)], string(rune('a'+rnd.IntN(3)))
			do := visible[rnd.IntN(len(visible))]
			value := fmt.Sprint(step)
			require.Equal(t, do(t, end[1], key, value), do(t, end[0], key, value), "seed %d, step %d", seed, step)
		}
		for _, end := range ends {
			require.NoError(t, end[0].Close())
		}
		require.NoError(t, s.Close())
	}
}

// visible are the operations whose results show what there is.
var visible = []func(t *testing.T, s Store, key, value string) any{
	func(t *testing.T, s Store, key, value string) any {
		return s.Set(t.Context(), key, []byte(value))
	},
	func(t *testing.T, s Store, key, value string) any {
		return s.Push(t.Context(), "q"+key, []byte(value))
	},
	func(t *testing.T, s Store, key, _ string) any {
		v, ok, err := s.TryPop(t.Context(), "q"+key)
		return []any{string(v), ok, err}
	},
	func(t *testing.T, s Store, key, _ string) any {
		n, err := s.Add(t.Context(), "n"+key, 1)
		return []any{n, err}
	},
	func(t *testing.T, s Store, key, _ string) any {
		there, err := s.Delete(t.Context(), key)
		return []any{there, err}
	},
	func(t *testing.T, s Store, key, value string) any {
		v, err := s.CompareSet(t.Context(), key, nil, []byte(value))
		return []any{string(v), err}
	},
	func(t *testing.T, s Store, _, _ string) any {
		keys, err := s.ListKeys(t.Context())
		n, errCount := s.NumKeys(t.Context())
		return []any{slices.Sorted(slices.Values(keys)), err, n, errCount}
	},
	func(t *testing.T, s Store, key, _ string) any {
		there, err := s.Check(t.Context(), key)
		return []any{there, err}
	},
}

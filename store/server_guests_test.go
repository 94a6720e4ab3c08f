package store

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/store/journal"
)

// bothWays is a member's client and a guest's of one server.
func bothWays(t *testing.T, s *Server, client *tls.Config) (member, guest *Client) {
	t.Helper()
	member, err := Dial(t.Context(), ClientConfig{Addr: s.Addr(), TLS: client})
	require.NoError(t, err)
	t.Cleanup(func() { member.Close() })
	return member, dialed(t, s)
}

// The oracle is two stores that have nothing to do with one another.
func TestMembersAndGuestsHaveKeysOfTheirOwn(t *testing.T) {
	leak.Check(t)
	server, client := identity(t)
	for seed := range uint64(soak.Cases(4)) {
		s, err := Serve(ServerConfig{TLS: server})
		require.NoError(t, err)
		member, guest := bothWays(t, s, client)
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
	func(t *testing.T, s Store, key, value string) any { return s.Set(t.Context(), key, []byte(value)) },
	func(t *testing.T, s Store, key, value string) any { return s.Push(t.Context(), "q"+key, []byte(value)) },
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

func TestWhatGuestsDoWakesNoMemberWhoWaitsOrWatches(t *testing.T) {
	server, client := identity(t)
	s := startServer(t, ServerConfig{TLS: server})
	guest := connectRaw(t, s)
	ask := "05 " + one + two + "'/k'"
	news := raw{t, tls.Client(connectRaw(t, s).nc, client)}
	news.send("07 02 00*7 '/k'")
	news.expect("03")
	waiter := raw{t, tls.Client(connectRaw(t, s).nc, client)}
	waiter.send(ask + " 06")
	waiter.expect("00*8")
	guest.send("00 02 00*7 '/k' 01 00*7 'g' 06")
	guest.expect(one)
	guest.send("08 02 00*7 '/k'")
	guest.expect(one)
	member := raw{t, tls.Client(connectRaw(t, s).nc, client)}
	member.send("00 02 00*7 '/k' 01 00*7 'm' 06")
	member.expect(one)
	waiter.expect("00")
	news.expect("01 02 00*7 '/k' 00*8 01 00*7 'm'") // and nothing before
}

func TestGuestsFillTheirRoomAndNotTheMembers(t *testing.T) {
	server, client := identity(t)
	s := startServer(t, ServerConfig{TLS: server, Limits: Limits{Memory: 4 << 20, Value: 1 << 20}})
	member, guest := bothWays(t, s, client)
	value := make([]byte, 1_000_000)
	for i := range 4 {
		require.NoError(t, guest.Set(t.Context(), fmt.Sprint(i), value))
	}
	require.ErrorIs(t, guest.Set(t.Context(), "k", value), ErrFull)
	begun := binary.LittleEndian.AppendUint64(unhex(t, "00 02 00*7 '/h'"), 1<<20)
	for range 3 {
		_, err := connectRaw(t, s).nc.Write(append(begun, value...))
		require.NoError(t, err)
	}
	for probe := connectRaw(t, s); s.guests.arriving.Load() < 3_000_000; {
		probe.alive()
	}
	for i := range 4 {
		require.NoError(t, member.Set(t.Context(), fmt.Sprint(i), value), "neither what guests have nor what they are sending takes members' room")
	}
}

func TestAJournalHasWhatGuestsHaveToo(t *testing.T) {
	leak.Check(t)
	server, client := identity(t)
	cfg := ServerConfig{TLS: server, Journal: JournalConfig{Path: filepath.Join(t.TempDir(), "journal"), Sync: journal.Never}}
	for life := range int64(3) {
		s, err := Serve(cfg)
		require.NoError(t, err)
		member, guest := bothWays(t, s, client)
		for i, cl := range []*Client{member, guest} {
			n, err := cl.Add(t.Context(), "n", int64(i+1))
			require.NoError(t, err)
			require.Equal(t, (life+1)*int64(i+1), n)
			keys, err := cl.ListKeys(t.Context())
			require.NoError(t, err)
			require.Equal(t, []string{"n"}, keys)
			require.NoError(t, cl.Close())
		}
		if life == 1 {
			s.compact()
		}
		require.NoError(t, s.Close())
	}
}

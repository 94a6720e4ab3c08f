package server

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/store/internal/client"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/talktest"
	"github.com/weft-project/weft/store/journal"
)

// bothWays is a member's client and a guest's of one server.
func bothWays(t *testing.T, s *Server, trusts *tls.Config) (member, guest *client.Client) {
	t.Helper()
	member, err := client.Dial(t.Context(), client.Config{Addr: s.Addr(), TLS: trusts})
	require.NoError(t, err)
	t.Cleanup(func() { member.Close() })
	return member, dialed(t, s)
}

func TestWhatGuestsDoWakesNoMemberWhoWaitsOrWatches(t *testing.T) {
	server, trusts := talktest.Identity(t)
	s := startServer(t, Config{TLS: server})
	guest := connectRaw(t, s)
	ask := "05 " + talktest.One + talktest.Two + "'/k'"
	news := talktest.NewRaw(t, tls.Client(connectRaw(t, s).NC, trusts))
	news.Send("07 02 00*7 '/k'")
	news.Expect("03")
	waiter := talktest.NewRaw(t, tls.Client(connectRaw(t, s).NC, trusts))
	waiter.Send(ask + " 06")
	waiter.Expect("00*8")
	guest.Send("00 02 00*7 '/k' 01 00*7 'g' 06")
	guest.Expect(talktest.One)
	guest.Send("08 02 00*7 '/k'")
	guest.Expect(talktest.One)
	member := talktest.NewRaw(t, tls.Client(connectRaw(t, s).NC, trusts))
	member.Send("00 02 00*7 '/k' 01 00*7 'm' 06")
	member.Expect(talktest.One)
	waiter.Expect("00")
	news.Expect("01 02 00*7 '/k' 00*8 01 00*7 'm'") // and nothing before
}

func TestGuestsFillTheirRoomAndNotTheMembers(t *testing.T) {
	server, trusts := talktest.Identity(t)
	s := startServer(t, Config{TLS: server, Limits: kv.Limits{Memory: 4 << 20, Value: 1 << 20}})
	member, guest := bothWays(t, s, trusts)
	value := make([]byte, 1_000_000)
	for i := range 4 {
		require.NoError(t, guest.Set(t.Context(), fmt.Sprint(i), value))
	}
	require.ErrorIs(t, guest.Set(t.Context(), "k", value), kv.ErrFull)
	begun := binary.LittleEndian.AppendUint64(talktest.Unhex(t, "00 02 00*7 '/h'"), 1<<20)
	for range 3 {
		_, err := connectRaw(t, s).NC.Write(append(begun, value...))
		require.NoError(t, err)
	}
	for probe := connectRaw(t, s); s.guests.arriving.Load() < 3_000_000; {
		probe.Alive()
	}
	for i := range 4 {
		require.NoError(t, member.Set(t.Context(), fmt.Sprint(i), value), "neither what guests have nor what they are sending takes members' room")
	}
}

func TestAJournalHasWhatGuestsHaveToo(t *testing.T) {
	leak.Check(t)
	server, trusts := talktest.Identity(t)
	cfg := Config{TLS: server, Journal: JournalConfig{Path: filepath.Join(t.TempDir(), "journal"), Sync: journal.Never}}
	for life := range int64(3) {
		s, err := Serve(cfg)
		require.NoError(t, err)
		member, guest := bothWays(t, s, trusts)
		for i, cl := range []*client.Client{member, guest} {
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

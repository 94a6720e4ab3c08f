package rdzv

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/store"
)

func TestAFailureIsHandledWhateverItsTextIs(t *testing.T) {
	for name, why := range map[string]string{
		"half a rune": "Traceback: \xe2\x82", "no text": "\xff\xfe\x00", "long": strings.Repeat("é", 10*maxMessage), "long and odd by one": "x" + strings.Repeat("é", maxText),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, st store.Store) {
				var said bytes.Buffer
				log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
				cfg := Config{Min: 2, MaxRestarts: 1}
				a, b := beginTelling(t, st, cfg, 0, log), beginTelling(t, st, cfg, 1, log)
				a.take(t, isPlaced)
				b.take(t, isPlaced)
				for _, l := range []*life{a, b} { // one of them leads
					l.r.Fail(0, 0, 1, 0, why)
					l.take(t, func(x Action) bool { return x.Kind == Restart || x.Kind == Finished })
					require.True(t, utf8.ValidString(l.last.Why))
				}
				require.Equal(t, Finished, b.last.Kind, "the only restart is spent")
				require.NoError(t, a.r.Leave(t.Context(), why))
				require.NoError(t, b.r.Leave(t.Context(), why))
				require.Empty(t, said.String())
			})
		})
	}
}

func TestWhoComesAfterALeaderThatLeavesWithAStrangeTextReadsTheState(t *testing.T) {
	bubble(t, func(t *testing.T, st store.Store) {
		cfg := Config{Min: 1, Max: 2, LastCall: time.Second}
		a, b := begin(t, st, cfg, 0), begin(t, st, cfg, 1)
		a.take(t, isPlaced)
		b.take(t, isPlaced)
		require.NoError(t, a.r.Leave(t.Context(), "half a rune: \xe2\x82"))
		b.take(t, isPlaced)
		require.Equal(t, 1, b.place.Nodes)
		leave(t, b)
	})
}

func TestPeopleHearOfAMessageThatCannotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T, st store.Store) {
		var said bytes.Buffer
		a := beginTelling(t, st, Config{Min: 1}, 0, slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn})))
		a.take(t, isPlaced)
		bad := pack(message{V: version, Event: Event{Kind: Fail, ID: "n9", Why: "half a rune: \xe2\x82"}})
		require.NoError(t, st.Push(t.Context(), keyInbox, bad))
		synctest.Wait()
		require.Contains(t, said.String(), "a message that cannot be read is ignored")
		leave(t, a)
	})
}

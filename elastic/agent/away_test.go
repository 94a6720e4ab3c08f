package agent

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/store"
)

func TestWhatTheRendezvousSaysOfItsStoreIsSaidInWordsOfPeople(t *testing.T) {
	var said []string
	log := slog.New(awayNews{func(s string) { said = append(said, s) }, Spec{Endpoint: "h:1"}.storeName()})
	deep := fmt.Errorf("store h:1: pop %q: %w", "rdzv/j/to/n", errors.Join(rdzv.ErrNoStore, fmt.Errorf("%w; %w", io.ErrUnexpectedEOF, store.ErrUncertain)))
	log.Info("rendezvous", "term", 3)
	log.Warn(rdzv.StoreAway, "for", time.Minute, "key", "to/n", "err", deep)
	log.Warn(rdzv.StoreBack, "after", 3*time.Second)
	log.Warn("something else", "n", 3)
	require.Equal(t, []string{
		"the machine at h:1, which hosts the rendezvous, is out of reach (unexpected EOF); if it does not come back, this node gives up in 1m0s",
		"the machine at h:1, which hosts the rendezvous, is back after 3s", "something else n=3"}, said)

	var err error = &lostError{"the store at h:1", deep}
	require.EqualError(t, err, "the store at h:1 is gone: unexpected EOF")
	require.ErrorIs(t, err, rdzv.ErrNoStore)
	require.EqualError(t, &lostError{"the store at h:1", io.EOF}, "the rendezvous cannot go on: EOF")
}

package rdzv

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/store"
)

// severed is a store that cannot be reached while it is down.
type severed struct {
	store.Store
	down *atomic.Bool
}

func (s severed) Set(c context.Context, k string, v []byte) error {
	if s.down.Load() {
		return store.ErrUnreachable
	}
	return s.Store.Set(c, k, v)
}

func (s severed) Push(c context.Context, k string, v []byte) error {
	if s.down.Load() {
		return store.ErrUnreachable
	}
	return s.Store.Push(c, k, v)
}

func TestAStoreThatIsAwayForThirtySecondsLosesNobody(t *testing.T) {
	bubble(t, func(t *testing.T, st store.Store) {
		s := severed{st, new(atomic.Bool)}
		cfg := Config{Min: 1, Max: 2, LastCall: time.Second}
		var said bytes.Buffer
		log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
		a, b := beginTelling(t, s, cfg, 0, log), begin(t, s, cfg, 1)
		a.take(t, isPlaced)
		b.take(t, isPlaced)
		s.down.Store(true)
		time.Sleep(30 * time.Second)
		s.down.Store(false)
		time.Sleep(time.Minute)
		select {
		case x := <-a.r.News:
			require.Fail(t, "there is news", "%+v", x)
		case x := <-b.r.News:
			require.Fail(t, "there is news", "%+v", x)
		default:
		}
		leave(t, a, b)
		require.Equal(t, 1, strings.Count(said.String(), "the rendezvous waits for its store"), said.String())
		require.Equal(t, 1, strings.Count(said.String(), "the rendezvous' store is back"), said.String())
	})
}

// cutOff is a store that who waits for a key loses when it is cut, and can wait for again at once.
type cutOff struct {
	store.Store
	mu   *sync.Mutex
	open map[context.Context]context.CancelFunc
}

func (s cutOff) Pop(c context.Context, queue string) ([]byte, error) {
	within, cancel := context.WithCancel(c)
	defer cancel()
	s.mu.Lock()
	s.open[within] = cancel
	s.mu.Unlock()
	b, err := s.Store.Pop(within, queue)
	s.mu.Lock()
	delete(s.open, within)
	s.mu.Unlock()
	if err != nil && c.Err() == nil {
		err = store.ErrUnreachable
	}
	return b, err
}

func (s cutOff) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cancel := range s.open {
		cancel()
	}
}

func TestAStoreThatWasAwayForAMomentIsBackThoughNobodyHasAnythingToSay(t *testing.T) {
	bubble(t, func(t *testing.T, st store.Store) {
		s := cutOff{Store: st, mu: new(sync.Mutex), open: map[context.Context]context.CancelFunc{}}
		var said bytes.Buffer
		log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
		a := beginTelling(t, s, Config{Min: 1}, 0, log)
		a.take(t, isPlaced)
		for range 3 { // further apart than a store may be away
			s.cut()
			time.Sleep(2 * time.Minute)
		}
		leave(t, a)
		away := strings.Count(said.String(), StoreAway)
		require.GreaterOrEqual(t, away, 3, said.String())
		require.Equal(t, away, strings.Count(said.String(), StoreBack), said.String())
	})
}

// silent is a store that answers nothing while it is down, as one that has no majority.
type silent struct {
	severed
}

func (s silent) TryPop(c context.Context, queue string) ([]byte, bool, error) {
	if s.down.Load() {
		<-c.Done()
		return nil, false, store.ErrTimeout
	}
	return s.Store.TryPop(c, queue)
}

func (s silent) Set(c context.Context, k string, v []byte) error {
	if s.down.Load() {
		<-c.Done()
		return store.ErrTimeout
	}
	return s.Store.Set(c, k, v)
}

func TestALeaderSaysThatItsStoreIsAwayThoughItFallsSilentWhileTheInboxIsEmptied(t *testing.T) {
	bubble(t, func(t *testing.T, st store.Store) {
		s := silent{severed{st, new(atomic.Bool)}}
		var said bytes.Buffer
		log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
		cfg := Config{Min: 1, Silence: 6 * time.Second}
		a := beginTelling(t, s, cfg, 0, log)
		a.take(t, isPlaced)
		time.Sleep(cfg.Silence/6 - time.Millisecond) // its next bulletin is due in a moment, but there is a message first
		s.down.Store(true)
		require.NoError(t, st.Push(t.Context(), keyInbox, pack(message{V: version, Event: Event{Kind: KeepAlive, ID: a.id}})))
		time.Sleep(cfg.Silence)
		synctest.Wait()
		require.Equal(t, 1, strings.Count(said.String(), StoreAway), said.String())
		s.down.Store(false)
		time.Sleep(cfg.Silence)
		leave(t, a)
		require.Equal(t, 1, strings.Count(said.String(), StoreBack), said.String())
	})
}

func TestAStoreThatStaysAwayIsAnErrorAfterAMinute(t *testing.T) {
	bubble(t, func(t *testing.T, st store.Store) {
		s := severed{st, new(atomic.Bool)}
		a := begin(t, s, Config{Min: 1}, 0)
		a.take(t, isPlaced)
		s.down.Store(true)
		start := time.Now()
		_, open := <-a.r.News
		require.False(t, open)
		require.InDelta(t, time.Minute, time.Since(start), float64(10*time.Second))
		a.r.Done(0) // does not wait for anything
		require.ErrorIs(t, a.r.Leave(context.Background(), ""), ErrNoStore)
	})
}

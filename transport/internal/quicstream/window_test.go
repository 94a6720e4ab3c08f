package quicstream

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

func TestTheWindowFitsThePath(t *testing.T) {
	require.EqualValues(t, windowLeast, windowFor(0, 0))
	require.EqualValues(t, windowLeast, windowFor(50*time.Microsecond, quietFor-1))
	require.EqualValues(t, windowQuiet, windowFor(50*time.Microsecond, quietFor), "nobody calls")
	require.EqualValues(t, 60_000_000, windowFor(50*time.Millisecond, 0))
	require.EqualValues(t, 60_000_000, windowFor(50*time.Millisecond, quietFor))
	require.EqualValues(t, LinkWindow, windowFor(time.Second, quietFor))
	require.EqualValues(t, eagerMost, eagerFor(LinkWindow))
	require.GreaterOrEqual(t, windowLeast-int(eagerFor(windowLeast)), creditEvery, "the peer says how far it has read before the window is full")
}

func TestTheWindowIsNarrowWhileThereAreCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := &atomic.Uint64{}
		size := sizeOf(func() time.Duration { return 0 }, lane.Env{Calls: calls})
		require.EqualValues(t, windowQuiet, size())
		calls.Add(1)
		require.EqualValues(t, windowLeast, size())
		time.Sleep(quietFor - 1)
		require.EqualValues(t, windowLeast, size())
		time.Sleep(time.Nanosecond)
		require.EqualValues(t, windowQuiet, size())
		calls.Add(1)
		require.EqualValues(t, windowLeast, size())
	})
}

// sender is a channel whose peer is the test: nothing connects them, and what it writes is what
// room grants.
func sender(size int64) *Channel {
	return &Channel{size: func() int64 { return size }, out: map[uint64]*transfer{}}
}

func transferOf(t *testing.T, h *Channel, bytes int64) *transfer {
	tr, err := h.Begin(nil)
	require.NoError(t, err)
	x := tr.(*transfer)
	h.mu.Lock()
	defer h.mu.Unlock()
	x.calmLocked()
	x.bytes, x.early = bytes, 0
	return x
}

func hear(h *Channel, what byte, id uint64, n int64) error {
	b := binary.LittleEndian.AppendUint64([]byte{what}, id)
	return h.Control(binary.LittleEndian.AppendUint64(b, uint64(n)))
}

func TestAPeerThatClaimsToHaveReadWhatWasNotWrittenBreaksTheRules(t *testing.T) {
	h := sender(4 * 64 << 10)
	x := transferOf(t, h, 1<<20)
	require.NoError(t, hear(h, wordAsk, x.id, 0))
	n, err := x.room(t.Context(), 100_000)
	require.NoError(t, err)
	require.EqualValues(t, 100_000, n)
	require.ErrorIs(t, hear(h, wordRead, x.id, 100_001), wire.ErrFrame)
	require.ErrorIs(t, hear(h, wordRead, x.id, -1), wire.ErrFrame)
	require.NoError(t, hear(h, wordRead, x.id, 60_000))
	require.ErrorIs(t, hear(h, wordRead, x.id, 59_999), wire.ErrFrame, "what was read stays so")
	require.NoError(t, hear(h, wordRead, 99, 1), "a transfer that is over")
	for _, word := range [][]byte{nil, {wordAsk}, make([]byte, 17), make([]byte, 18), append([]byte{4}, make([]byte, 16)...)} {
		require.ErrorIs(t, h.Control(word), wire.ErrFrame)
	}
}

// Transfers begin, are asked for, read, refused and given up at random. No more than the window is
// ever under way, everybody gets everything in the end, and nothing is left.
func TestTransfersShareTheWindowAndLeaveNothing(t *testing.T) {
	for seed := range uint64(soak.Cases(20)) {
		r := rand.New(rand.NewPCG(seed, 1))
		h := sender(windowLeast)
		var readers, writers sync.WaitGroup
		for range 12 {
			x := transferOf(t, h, 1+r.Int64N(1<<20))
			ends, at := r.IntN(3), r.Int64N(x.bytes)
			c, cancel := context.WithCancel(t.Context())
			x.cancel = cancel
			wrote := make(chan int64, 1000)
			writers.Go(func() {
				defer close(wrote)
				for left := x.bytes; left > 0; {
					n, err := x.room(c, left)
					if err != nil {
						break
					}
					left -= n
					wrote <- n
				}
				h.mu.Lock()
				defer h.mu.Unlock()
				if x.over = true; c.Err() != nil || x.read == x.bytes {
					x.leaveLocked()
				}
			})
			readers.Go(func() {
				defer cancel()
				if err := hear(h, wordAsk, x.id, 0); err != nil {
					t.Error(err)
				}
				var got int64
				for n := range wrote {
					h.mu.Lock()
					if h.window.used > windowLeast {
						t.Errorf("%d bytes are under way", h.window.used)
					}
					h.mu.Unlock()
					switch got += n; {
					case ends == 1 && got > at:
						cancel()
						continue
					case ends == 2 && got > at:
						_ = hear(h, wordRefuse, x.id, 0)
						continue
					}
					if err := hear(h, wordRead, x.id, got); err != nil {
						t.Error(err)
					}
				}
				if ends > 0 {
					if err := hear(h, wordRefuse, x.id, 0); err != nil {
						t.Error(err)
					}
				} else if got != x.bytes {
					t.Errorf("seed %d: %d of %d bytes", seed, got, x.bytes)
				}
			})
		}
		readers.Wait()
		writers.Wait()
		require.Empty(t, h.out, "seed %d", seed)
		require.Empty(t, h.window.waits)
		require.Zero(t, h.window.used)
		require.Zero(t, h.bytes)
		require.Zero(t, h.count)
	}
}

package quicstream_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/link"
	"github.com/weft-project/weft/transport/internal/quicstream"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

func TestNoMoreThanTheWindowIsUnderWayOnALink(t *testing.T) {
	leak.Check(t)
	here, there := quicPair(t, link.Config{Lanes: []string{wire.LaneQUIC}})
	h := here.Data
	var most int64
	h.Narrow(func(used int64) { most = max(most, used) })
	var wg sync.WaitGroup
	for range 4 {
		s, err := here.Open(t.Context())
		require.NoError(t, err)
		wg.Go(func() {
			m := transporttest.Floats(t, 1<<20)
			defer m.Release()
			m.End = true
			if err := s.Send(t.Context(), m); err != nil {
				t.Error(err)
			}
			s.Reset(nil)
		})
		other, err := there.Accept(t.Context())
		require.NoError(t, err)
		wg.Go(func() {
			m, err := other.Recv(t.Context(), nil)
			if err != nil {
				t.Error(err)
				return
			}
			m.Release()
			other.Reset(nil)
		})
	}
	wg.Wait()
	require.Eventually(t, func() bool {
		out, _, _, count, bytes := here.Data.Held()
		return out+count+int(bytes) == 0
	}, time.Minute, time.Millisecond)
	h.Narrow(func(int64) {}) // from now on nobody writes it
	require.Greater(t, most, int64(quicstream.WindowLeast)/2, "the window was in use")
	require.LessOrEqual(t, most, int64(quicstream.WindowLeast)+quicstream.EagerFor(quicstream.WindowLeast), "what went before it was asked for comes on top")
}

func TestTensorsThatNobodyReceivesAreFewAndDoNotKeepOthersFromTravelling(t *testing.T) {
	leak.Check(t)
	here, there := quicPair(t, link.Config{Lanes: []string{wire.LaneQUIC}})
	c, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 100 { // 100 MB that nobody receives
		s, err := here.Open(c)
		require.NoError(t, err)
		wg.Go(func() {
			m := transporttest.Floats(t, 1<<18)
			defer m.Release()
			s.Reset(s.Send(c, m))
		})
	}
	var ignored []wire.Stream
	for range 100 {
		s, err := there.Accept(t.Context())
		require.NoError(t, err)
		ignored = append(ignored, s)
	}
	_, _, _, count, bytes := here.Data.Held()
	require.LessOrEqual(t, count, quicstream.EagerCount)
	require.LessOrEqual(t, bytes, int64(quicstream.EagerMost))

	mine, err := here.Open(t.Context())
	require.NoError(t, err)
	m := transporttest.Floats(t, 1<<20)
	defer m.Release()
	m.End = true
	sent := make(chan error, 1)
	go func() { sent <- mine.Send(t.Context(), m) }()
	theirs, err := there.Accept(t.Context())
	require.NoError(t, err)
	got, err := theirs.Recv(t.Context(), nil)
	require.NoError(t, err)
	got.Release()
	require.NoError(t, <-sent)
	mine.Reset(nil)
	theirs.Reset(nil)

	cancel()
	wg.Wait()
	for i, s := range ignored {
		if i%2 == 0 {
			m, err := s.Recv(t.Context(), nil)
			if err == nil {
				m.Release()
			}
		}
		s.Reset(nil)
	}
	require.Eventually(t, func() bool {
		for _, l := range []*link.Link{here, there} {
			out, wanted, arrived, count, bytes := l.Data.Held()
			if out+wanted+arrived+count+int(bytes) > 0 {
				return false
			}
		}
		return true
	}, 10*time.Second, time.Millisecond, "nothing is left")
	require.NoError(t, here.Err())
	require.NoError(t, there.Err())
}

func TestAFetchThatIsInterruptedHoldsNothing(t *testing.T) {
	leak.Check(t)
	here, there := quicPair(t, link.Config{Lanes: []string{wire.LaneQUIC}})
	for i := range 20 {
		s, err := here.Open(t.Context())
		require.NoError(t, err)
		sent := make(chan error, 1)
		m := transporttest.Floats(t, 4<<20)
		go func() { sent <- s.Send(t.Context(), m) }()
		other, err := there.Accept(t.Context())
		require.NoError(t, err)
		c, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
		got, err := other.Recv(c, nil)
		if err == nil {
			got.Release()
			require.NoError(t, <-sent)
		} else {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			other.Reset(err)
			require.ErrorIs(t, <-sent, wire.ErrReset)
		}
		cancel()
		m.Release()
		s.Reset(nil)
		other.Reset(nil)
	}
	require.NoError(t, here.Err())
}

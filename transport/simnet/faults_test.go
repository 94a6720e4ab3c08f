package simnet_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/simnet"
)

// bubble runs a test on its own clock and checks that nothing stays.
func bubble(t *testing.T, cfg simnet.Config, run func(t *testing.T, n *simnet.Net, p *transporttest.Pair)) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		n := simnet.New(cfg)
		p := transporttest.Link(t, func(testing.TB) (dialer, listener transport.Network) { return n.Host("a"), n.Host("b") })
		p.C = t.Context() // the clock runs as fast as it likes: patience means nothing
		run(t, n, p)
	})
}

func msg(s string) *transport.Message { return &transport.Message{Header: []byte(s)} }

// arrivals sends ten messages on each of ten streams at once, and says what arrived when, in order
// of arrival.
func arrivals(t *testing.T, seed uint64) (log []string) {
	const lo, hi = 10 * time.Millisecond, 50 * time.Millisecond
	bubble(t, simnet.Config{Seed: seed, MinDelay: lo, MaxDelay: hi}, func(t *testing.T, _ *simnet.Net, p *transporttest.Pair) {
		start := time.Now()
		for i := range 10 {
			s, err := p.Dialed.Open(p.C)
			require.NoError(t, err)
			for k := range 10 {
				require.NoError(t, s.Send(p.C, msg(fmt.Sprintf("%d.%d", i, k))))
			}
			require.NoError(t, s.CloseSend())
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 10 {
			s, err := p.Served.Accept(p.C)
			require.NoError(t, err)
			wg.Go(func() {
				for {
					m, err := s.Recv(p.C, nil)
					if err != nil {
						return
					}
					took := time.Since(start)
					mu.Lock()
					log = append(log, fmt.Sprintf("%s %v", m.Header, took))
					mu.Unlock()
					if took < lo || took > hi {
						t.Errorf("%s took %v", m.Header, took)
					}
				}
			})
		}
		wg.Wait()
	})
	return log
}

func TestMessagesOfDifferentStreamsOvertakeEachOtherAndThoseOfOneDoNot(t *testing.T) {
	log := arrivals(t, 1)
	require.Len(t, log, 100)
	next, overtaken := map[string]int{}, false
	for i, line := range log {
		stream, number, _ := strings.Cut(strings.Fields(line)[0], ".")
		require.Equal(t, fmt.Sprint(next[stream]), number, "%v", log)
		next[stream]++
		overtaken = overtaken || i > 0 && stream < log[i-1][:1]
	}
	require.True(t, overtaken)
}

func TestTheSeedDecidesWhatArrivesWhen(t *testing.T) {
	sorted := func(seed uint64) map[string]bool { // what arrives at the same instant may be noted in any order
		set := map[string]bool{}
		for _, line := range arrivals(t, seed) {
			set[line] = true
		}
		return set
	}
	require.Equal(t, sorted(7), sorted(7))
	require.NotEqual(t, sorted(7), sorted(8))
}

func TestADroppedMessageStallsItsStreamOnly(t *testing.T) {
	drop := func(from, to string, m *transport.Message) bool {
		return from == "a" && to == "b" && string(m.Header) == "lost"
	}
	bubble(t, simnet.Config{Drop: drop, MaxDelay: time.Millisecond}, func(t *testing.T, _ *simnet.Net, p *transporttest.Pair) {
		here, there := p.Stream(t)
		require.NoError(t, here.Send(p.C, msg("lost")))
		require.NoError(t, here.Send(p.C, msg("after")))
		require.NoError(t, here.CloseSend())
		c, cancel := context.WithTimeout(p.C, time.Hour)
		defer cancel()
		_, err := there.Recv(c, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, there.Send(p.C, msg("lost"))) // the other direction is well
		m, err := here.Recv(p.C, nil)
		require.NoError(t, err)
		require.Equal(t, "lost", string(m.Header))
		p.Stream(t) // and so are other streams
		here.Reset(io.ErrClosedPipe)
		_, err = there.Recv(p.C, nil)
		require.ErrorIs(t, err, transport.ErrReset)
		there.Reset(nil)
	})
}

func TestACutThatIsHealedInTimeOnlyDelays(t *testing.T) {
	bubble(t, simnet.Config{Detect: time.Minute, MaxDelay: time.Millisecond}, func(t *testing.T, n *simnet.Net, p *transporttest.Pair) {
		here, there := p.Stream(t)
		require.NoError(t, here.Send(p.C, msg("under way")))
		n.Cut("b", "a")
		n.Cut("a", "b") // twice is once
		require.NoError(t, there.Send(p.C, msg("held back")))
		start := time.Now()
		time.AfterFunc(50*time.Second, func() { n.Heal("a", "b") })
		for s, want := range map[transport.Stream]string{here: "held back", there: "under way"} {
			m, err := s.Recv(p.C, nil)
			require.NoError(t, err)
			require.Equal(t, want, string(m.Header))
		}
		require.Equal(t, 50*time.Second, time.Since(start))
		time.Sleep(time.Hour)
		require.NoError(t, p.Dialed.Err())
	})
}

func TestACutThatLastsLosesBothEnds(t *testing.T) {
	bubble(t, simnet.Config{Detect: 7 * time.Second}, func(t *testing.T, n *simnet.Net, p *transporttest.Pair) {
		here, there := p.Stream(t)
		start := time.Now()
		n.Cut("a", "b")
		n.Cut("a", "c") // others do not matter
		for _, s := range []transport.Stream{here, there} {
			_, err := s.Recv(p.C, nil)
			require.ErrorIs(t, err, transport.ErrPeerLost)
			require.ErrorIs(t, context.Cause(s.Context()), transport.ErrPeerLost)
		}
		require.Equal(t, 7*time.Second, time.Since(start))
		_, err := p.Dialer.Dial(p.C, p.Listener.Addr())
		require.ErrorIs(t, err, transport.ErrUnreachable)
		require.Equal(t, 14*time.Second, time.Since(start))
		n.Heal("a", "b")
		require.ErrorIs(t, p.Served.Err(), transport.ErrPeerLost, "what is lost stays lost")
		link, err := p.Dialer.Dial(p.C, p.Listener.Addr())
		require.NoError(t, err)
		require.NoError(t, link.Close(""))
	})
}

func TestAGoodbyeWaitsForTheEndOfACut(t *testing.T) {
	for healed, want := range map[bool]error{true: transport.ErrPeerClosed, false: transport.ErrPeerLost} {
		bubble(t, simnet.Config{Detect: 10 * time.Second}, func(t *testing.T, n *simnet.Net, p *transporttest.Pair) {
			n.Cut("a", "b")
			require.NoError(t, p.Dialed.Close("bye"))
			time.Sleep(5 * time.Second)
			require.NoError(t, p.Served.Err())
			if healed {
				n.Heal("a", "b")
			}
			<-p.Served.Done()
			require.ErrorIs(t, p.Served.Err(), want)
		})
	}
}

func TestAKilledHostIsSilentAndItsPeersLoseIt(t *testing.T) {
	bubble(t, simnet.Config{Detect: 6 * time.Second, MinDelay: time.Second, MaxDelay: time.Second}, func(t *testing.T, n *simnet.Net, p *transporttest.Pair) {
		here, there := p.Stream(t)
		require.NoError(t, there.Send(p.C, msg("sent before death")))
		start := time.Now()
		n.Kill("b")
		_, err := there.Recv(p.C, nil)
		require.ErrorIs(t, err, transport.ErrClosed)
		_, err = p.Listener.Accept(p.C)
		require.ErrorIs(t, err, transport.ErrClosed)
		require.NoError(t, here.Send(p.C, msg("into the void")))
		_, err = here.Recv(p.C, nil)
		require.ErrorIs(t, err, transport.ErrPeerLost)
		require.Equal(t, 6*time.Second, time.Since(start))
		_, err = p.Dialer.Dial(p.C, p.Listener.Addr())
		require.ErrorIs(t, err, transport.ErrUnreachable)

		again := n.Host("b")
		l, err := again.Listen(p.C, p.Listener.Addr())
		require.NoError(t, err)
		defer l.Close()
		link, err := p.Dialer.Dial(p.C, l.Addr())
		require.NoError(t, err)
		defer link.Close("")
		n.Kill("a")
		_, err = p.Dialer.Dial(p.C, l.Addr())
		require.ErrorIs(t, err, transport.ErrClosed, "the old life is over")
		_, err = p.Dialer.Listen(p.C, ":0")
		require.ErrorIs(t, err, transport.ErrClosed)
	})
}

func TestAnotherTokenIsRefusedAndToldOnce(t *testing.T) {
	var log bytes.Buffer
	cfg := simnet.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	bubble(t, cfg, func(t *testing.T, n *simnet.Net, p *transporttest.Pair) {
		stranger := n.HostWithToken("stranger", "another token")
		for range 3 {
			_, err := stranger.Dial(p.C, p.Listener.Addr())
			require.ErrorIs(t, err, transport.ErrIdentity)
		}
		require.Equal(t, 1, strings.Count(log.String(), "\n"))
		require.Contains(t, log.String(), "peer=stranger")
	})
}

func TestOpenWaitsForAStreamToBeFinishedAtThePeer(t *testing.T) {
	bubble(t, simnet.Config{MaxStreams: 1}, func(t *testing.T, _ *simnet.Net, p *transporttest.Pair) {
		here, there := p.Stream(t)
		c, cancel := context.WithTimeout(p.C, time.Second)
		defer cancel()
		_, err := p.Dialed.Open(c)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = p.Served.Open(p.C) // the other end has its own
		require.NoError(t, err)
		here.Reset(nil)
		opened := make(chan error, 1)
		go func() {
			_, err := p.Dialed.Open(p.C)
			opened <- err
		}()
		synctest.Wait()
		require.Empty(t, opened, "the peer has not finished its end")
		there.Reset(nil)
		require.NoError(t, <-opened)
	})
}

func TestAddressesAreOfTheHost(t *testing.T) {
	n := simnet.New(simnet.Config{})
	h := n.Host("w")
	first, err := h.Listen(t.Context(), "0.0.0.0:0")
	require.NoError(t, err)
	second, err := h.Listen(t.Context(), ":0")
	require.NoError(t, err)
	require.NotEqual(t, first.Addr(), second.Addr())
	require.True(t, strings.HasPrefix(first.Addr(), "w:"))
	_, err = h.Listen(t.Context(), first.Addr())
	require.ErrorContains(t, err, "in use")
	require.NoError(t, first.Close())
	_, err = h.Listen(t.Context(), first.Addr())
	require.NoError(t, err)
	_, err = h.Listen(t.Context(), "nonsense")
	require.Error(t, err)
	_, err = simnet.New(simnet.Config{MinDelay: 2, MaxDelay: 1}).Host("w").Listen(t.Context(), ":0")
	require.ErrorContains(t, err, "MinDelay")
	_, err = simnet.New(simnet.Config{Limits: transport.Limits{MaxHeader: -1}}).Host("w").Dial(t.Context(), "x:1")
	require.ErrorContains(t, err, "MaxHeader")
}

// Random schedules of sends, cuts, heals, closes and a kill: whatever happens, what arrives on a
// stream is a beginning of what was sent on it, nobody waits for ever, and nothing stays behind.
func TestWhateverHappensStreamsArriveInOrderAndEnd(t *testing.T) {
	for seed := range uint64(60) {
		cfg := simnet.Config{Seed: seed, MaxDelay: 200 * time.Millisecond, Detect: time.Second}
		bubble(t, cfg, func(t *testing.T, n *simnet.Net, p *transporttest.Pair) {
			r := rand.New(rand.NewPCG(seed, 1))
			var wg sync.WaitGroup
			wg.Go(func() { trouble(n, p, r) })
			for range 5 {
				wg.Go(func() { pour(t, p, seed) })
			}
			wg.Go(func() {
				for {
					s, err := p.Served.Accept(p.C)
					if err != nil {
						return
					}
					wg.Go(func() { drain(t, p, s) })
				}
			})
			wg.Wait()
			<-p.Dialed.Done()
			<-p.Served.Done()
		})
	}
}

// trouble ends by ending the link, in one way or another.
func trouble(n *simnet.Net, p *transporttest.Pair, r *rand.Rand) {
	for range r.IntN(6) {
		time.Sleep(time.Duration(r.IntN(int(400 * time.Millisecond))))
		n.Cut("a", "b")
		time.Sleep(time.Duration(r.IntN(int(1100 * time.Millisecond))))
		n.Heal("a", "b")
	}
	switch r.IntN(4) {
	case 0:
		n.Kill("a")
	case 1:
		n.Kill("b")
	case 2:
		n.Cut("a", "b")
	}
	_ = p.Served.Close("enough")
}

// pour sends numbers with a tensor until something fails.
func pour(t *testing.T, p *transporttest.Pair, seed uint64) {
	s, err := p.Dialed.Open(p.C)
	if err != nil {
		return
	}
	defer s.Reset(nil)
	x := transporttest.Tensor(t, rand.New(rand.NewPCG(seed, 2)), device.Host(), device.Int32, 4)
	defer x.Buf.Release()
	for i := 0; i < 200; i++ {
		m := msg(fmt.Sprint(i))
		m.Tensors = []transport.Tensor{x}
		if s.Send(p.C, m) != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	_ = s.CloseSend()
	_, _ = s.Recv(p.C, nil)
}

func drain(t *testing.T, p *transporttest.Pair, s transport.Stream) {
	defer s.Reset(nil)
	for i := 0; ; i++ {
		m, err := s.Recv(p.C, nil)
		if err != nil {
			if err == io.EOF && i != 200 {
				t.Errorf("the end after %d messages", i)
			}
			return
		}
		if string(m.Header) != fmt.Sprint(i) {
			t.Errorf("expected message %d, received %s", i, m.Header)
		}
		m.Release()
	}
}

package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

// fakeLane is a lane in memory, which fails where it is told to.
type fakeLane struct {
	name                                       string
	noOffer, noServe, noJoin, noExpect, noWait error

	mu      sync.Mutex
	waiting map[[32]byte]chan *lane.End
	up      int // ends that were made and not closed or dropped
}

func (f *fakeLane) Lane() string                        { return f.name }
func (f *fakeLane) Offer() ([]byte, error)              { return []byte("offer"), f.noOffer }
func (f *fakeLane) Serve(net.Addr) (lane.Server, error) { return f, f.noServe }
func (f *fakeLane) Close()                              {}

func (f *fakeLane) end(k lane.Conduit) *lane.End {
	f.mu.Lock()
	f.up++
	f.mu.Unlock()
	once := sync.OnceFunc(func() {
		_ = k.Close()
		f.mu.Lock()
		f.up--
		f.mu.Unlock()
	})
	return &lane.End{Conduit: &closing{k, once}, Drop: once}
}

type closing struct {
	lane.Conduit
	done func()
}

func (k *closing) Close() error { k.done(); return nil }

func (f *fakeLane) Join(c context.Context, with lane.Peer, answer []byte) (*lane.End, error) {
	if string(answer) != "answer" {
		return nil, fmt.Errorf("a strange answer %q", answer)
	}
	if f.noJoin != nil {
		return nil, f.noJoin
	}
	f.mu.Lock()
	to := f.waiting[with.Secret]
	f.mu.Unlock()
	if to == nil {
		return nil, errors.New("the secrets differ")
	}
	a, b := transporttest.Conduits(nil)
	to <- f.end(b)
	return f.end(a), nil
}

func (f *fakeLane) Expect(with lane.Peer, offer []byte) ([]byte, func(context.Context) (*lane.End, error), error) {
	if string(offer) != "offer" || f.noExpect != nil {
		return nil, nil, errors.Join(f.noExpect, io.ErrUnexpectedEOF)
	}
	ch := make(chan *lane.End, 1)
	f.mu.Lock()
	f.waiting[with.Secret] = ch
	f.mu.Unlock()
	return []byte("answer"), func(c context.Context) (*lane.End, error) {
		select {
		case end := <-ch:
			if f.noWait != nil {
				end.Drop()
				return nil, f.noWait
			}
			return end, nil
		case <-c.Done():
			return nil, c.Err()
		}
	}, nil
}

func TestALaneIsUsedWhereBothEndsHaveItAndElseSaysWhy(t *testing.T) {
	no := errors.New("no way")
	for name, test := range map[string]struct {
		fake            *fakeLane
		dialled, served string // why not
	}{
		"both have it":               {&fakeLane{}, "", ""},
		"the dialler has none":       {&fakeLane{noOffer: no}, "no way", "the peer says: no way"},
		"the listener has none":      {&fakeLane{noServe: no}, "the peer says: no way", "no way"},
		"the listener does not like": {&fakeLane{noExpect: no}, "the peer says: no way", "no way"},
		"it cannot be joined":        {&fakeLane{noJoin: no}, "no way", "the peer says: no way"},
		"it fails at the listener":   {&fakeLane{noWait: no}, "the peer says: no way", "no way"},
	} {
		t.Run(name, func(t *testing.T) {
			leak.Check(t)
			fake := test.fake
			fake.name, fake.waiting = wire.LaneLocal, map[[32]byte]chan *lane.End{}
			n, err := New(Config{Identity: memberOf(t, transporttest.Token(), "w", time.Now)})
			require.NoError(t, err)
			n.(*network).makers = []lane.Maker{fake}
			l, err := n.Listen(t.Context(), "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()
			here, err := n.Dial(t.Context(), l.Addr())
			require.NoError(t, err)
			there, err := l.Accept(t.Context())
			require.NoError(t, err)

			for i, link := range []wire.Link{here, there} {
				lanes := link.Lanes()
				require.Len(t, lanes, len(laneNames()), "all but lane cuda, which is not worth a word")
				last := len(lanes) - 1
				require.Equal(t, wire.LaneLocal, lanes[0].Name)
				require.Contains(t, lanes[0].Why, []string{test.dialled, test.served}[i])
				require.Equal(t, test.dialled == "", lanes[0].Why == "")
				for _, other := range lanes[1:last] {
					require.Contains(t, other.Why, "not to be had", other.Name)
				}
				require.Equal(t, wire.LaneQUIC, lanes[last].Name)
				require.Empty(t, lanes[last].Why)
			}
			s, err := here.Open(t.Context())
			require.NoError(t, err)
			require.NoError(t, s.Send(t.Context(), &wire.Message{Header: []byte("hi"), End: true}))
			other, err := there.Accept(t.Context())
			require.NoError(t, err)
			_, err = other.Recv(t.Context(), nil)
			require.NoError(t, err)
			used := map[bool]string{true: wire.LaneLocal, false: wire.LaneQUIC}[test.dialled == ""]
			for _, state := range here.Lanes() {
				require.Equal(t, state.Name == used, state.Sent > 0, state.Name)
			}
			require.NoError(t, here.Close("done"))
			<-there.Done()
			require.ErrorIs(t, there.Err(), wire.ErrPeerClosed)
			require.ErrorContains(t, there.Err(), "done")
			require.NoError(t, there.Close(""))
			require.Eventually(t, func() bool {
				fake.mu.Lock()
				defer fake.mu.Unlock()
				return fake.up == 0
			}, time.Second, time.Millisecond, "every end is closed")
		})
	}
}

func TestALaneThatWasNotAskedForSaysSo(t *testing.T) {
	_, err := New(Config{Identity: memberOf(t, transporttest.Token(), "w", time.Now), Lanes: []string{"tin can"}})
	require.ErrorContains(t, err, `"tin can"`)
	here, there := quicPair(t, Config{Lanes: []string{wire.LaneQUIC}})
	for _, link := range []wire.Link{here, there} {
		for _, state := range link.Lanes() {
			require.Equal(t, state.Name != wire.LaneQUIC, state.Why == "it was not asked for", state.Name)
		}
	}
}

// quicPair makes a link over QUIC that ends with the test.
func quicPair(t testing.TB, cfg Config) (here, there *Link) {
	id, err := identity.FromToken(transporttest.Token(), transporttest.Job, "w", time.Now)
	require.NoError(t, err)
	cfg.Identity = id
	n, err := New(cfg)
	require.NoError(t, err)
	l, err := n.Listen(context.Background(), "127.0.0.1:0")
	require.NoError(t, err)
	a, err := n.Dial(context.Background(), l.Addr())
	require.NoError(t, err)
	b, err := l.Accept(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.Close(""); _ = b.Close(""); _ = l.Close() })
	return a.(*Link), b.(*Link)
}

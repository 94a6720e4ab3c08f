package client

import (
	"context"
	"io"
	"net"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
)

func requireChange(t *testing.T, w *kv.Watch, kind kv.ChangeKind, before, after string, dropped int) {
	t.Helper()
	want := kv.Change{Kind: kind, Key: "k", Old: []byte(before), New: []byte(after), Dropped: dropped}
	if kind == kv.Created {
		want.Old = nil
	}
	if kind == kv.Deleted {
		want.New = nil
	}
	ch, open := <-w.C
	require.True(t, open, "%v", w.Err())
	require.Equal(t, want, ch)
}

func requireNoChange(t *testing.T, w *kv.Watch) {
	t.Helper()
	select {
	case ch := <-w.C:
		require.Fail(t, "told", "%v", ch)
	case <-time.After(10 * time.Second):
	}
}

func TestAWatchGoesOnAfterALostConnectionAndSaysWhatItMissed(t *testing.T) {
	inEach(t, []string{"weft", "1.13", "2.0", "2.6"}, func(t *testing.T, f *fake, cl *Client) {
		w, err := cl.Watch(t.Context(), "k")
		require.NoError(t, err)
		defer w.Stop()
		lose := func(meanwhile func()) {
			synctest.Wait()
			f.stop()
			time.Sleep(3 * time.Second)
			meanwhile()
			f.start()
		}
		lose(func() {})
		requireNoChange(t, w)
		lose(func() { f.set("/k", "1"); f.set("/k", "2") })
		requireChange(t, w, kv.Created, "", "2", -1)
		lose(func() { f.set("/k", "3") })
		requireChange(t, w, kv.Updated, "2", "3", -1)
		lose(func() { f.apply(state.Command{Op: state.OpDelete, Key: "/k"}) })
		requireChange(t, w, kv.Deleted, "3", "", -1)
		lose(func() {})
		requireNoChange(t, w)
		seen := 0
		if !f.own {
			seen = -1
		}
		f.set("/k", "4")
		requireChange(t, w, kv.Created, "", "4", seen)
	})
}

// PyTorch 2.1 and later tell nobody, and those before must not be asked to: they would tell the
// wrong one in the end.
func TestWhereNobodyTellsAWatchLooks(t *testing.T) {
	inEach(t, []string{"1.13", "2.0", "2.1", "2.4", "2.6", "2.8", "poll", "2.15"}, func(t *testing.T, f *fake, cl *Client) {
		f.set("/k", "0")
		w, err := cl.Watch(t.Context(), "k")
		require.NoError(t, err)
		defer w.Stop()
		require.Zero(t, f.stats().Watchers)
		synctest.Wait() // until it rests: a look between the two changes would tell both
		f.set("/k", "1")
		f.set("/k", "2")
		start := time.Now()
		requireChange(t, w, kv.Updated, "0", "2", -1)
		require.LessOrEqual(t, time.Since(start), watchLook)
		f.apply(state.Command{Op: state.OpDelete, Key: "/k"})
		requireChange(t, w, kv.Deleted, "2", "", -1)
		f.set("/k", "")
		requireChange(t, w, kv.Created, "", "", -1)
		requireNoChange(t, w)
	})
}

func TestAllWatchesOfAClientShareOneConnection(t *testing.T) {
	inEach(t, []string{"weft", "1.13", "2.6"}, func(t *testing.T, f *fake, cl *Client) {
		const keys = 120
		watches := make([]*kv.Watch, 2*keys)
		for i := range watches {
			var err error
			watches[i], err = cl.Watch(t.Context(), strconv.Itoa(i/2))
			require.NoError(t, err)
		}
		synctest.Wait()
		require.LessOrEqual(t, len(f.conns), 2)
		if f.own {
			require.Equal(t, keys, f.stats().Watchers)
		}
		for i := range keys {
			f.set("/"+strconv.Itoa(i), "v")
		}
		for i, w := range watches {
			ch := <-w.C
			require.Equal(t, strconv.Itoa(i/2), ch.Key)
			require.Equal(t, "v", string(ch.New))
			if i%2 == 0 {
				w.Stop()
			}
		}
		f.set("/7", "again")
		ch := <-watches[15].C
		require.Equal(t, "again", string(ch.New), "that the one is stopped is nothing to the other")
		for _, w := range watches {
			w.Stop()
		}
		synctest.Wait()
		require.Zero(t, f.stats().Watchers, "the server has forgotten them")
		require.LessOrEqual(t, len(f.conns), 1, "and the connection is closed")
	})
}

func TestAKeyThatIsNoLongerWatchedIsForgottenByAServerThatKnowsHow(t *testing.T) {
	inEach(t, []string{"weft"}, func(t *testing.T, f *fake, cl *Client) {
		keep, err := cl.Watch(t.Context(), "k")
		require.NoError(t, err)
		defer keep.Stop()
		for i := range 20 {
			w, err := cl.Watch(t.Context(), "other")
			require.NoError(t, err)
			f.set("/other", strconv.Itoa(i))
			require.Equal(t, strconv.Itoa(i), string((<-w.C).New))
			w.Stop()
			synctest.Wait()
			require.Equal(t, 1, f.stats().Watchers)
		}
	})
}

func TestAWatchThatCannotBeginEndsInTime(t *testing.T) {
	inEach(t, []string{"weft", "1.13", "2.6"}, func(t *testing.T, f *fake, cl *Client) {
		f.stop()
		synctest.Wait()
		start := time.Now()
		_, err := cl.Watch(t.Context(), "k")
		require.Equal(t, kv.DefaultTimeout, time.Since(start))
		require.ErrorIs(t, err, kv.ErrTimeout)
		require.ErrorIs(t, err, kv.ErrUnreachable)
		require.ErrorContains(t, err, "connection refused")
		c, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = cl.Watch(c, "k")
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		require.Empty(t, cl.watches.keys)
		f.start()
		w, err := cl.Watch(t.Context(), "k")
		require.NoError(t, err)
		f.set("/k", "v")
		require.Equal(t, "v", string((<-w.C).New))
		w.Stop()
	})
}

func TestAWatchThatTheServerRefusesFailsAlone(t *testing.T) {
	inEach(t, []string{"weft"}, func(t *testing.T, f *fake, cl *Client) {
		f.state.Limits.Keys = 1
		w, err := cl.Watch(t.Context(), "k")
		require.NoError(t, err)
		defer w.Stop()
		_, err = cl.Watch(t.Context(), "other")
		require.ErrorIs(t, err, kv.ErrTooLarge)
		f.set("/k", "v")
		requireChange(t, w, kv.Created, "", "v", 0)
	})
}

func TestAWatchOfAServerThatTalksNonsenseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, "weft")
		var watch net.Conn // the server's end of the connection for news
		cl := f.client(Config{})
		cl.cfg.dial = func(c context.Context, addr string) (net.Conn, error) {
			near, far := net.Pipe()
			server, err := f.dial(c, addr)
			require.NoError(t, err)
			watch = far
			go func() { _, _ = io.Copy(server, far) }()
			go func() { _, _ = io.Copy(far, server); far.Close() }()
			t.Cleanup(func() { server.Close(); far.Close() })
			return near, nil
		}
		w, err := cl.Watch(t.Context(), "k")
		require.NoError(t, err)
		_, err = watch.Write([]byte{0})
		require.NoError(t, err)
		_, open := <-w.C
		require.False(t, open)
		require.ErrorIs(t, w.Err(), kv.ErrProtocol)
		require.ErrorContains(t, w.Err(), `store fake:1: watch "k"`)
	})
}

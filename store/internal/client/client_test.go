package client

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/server"
	"github.com/weft-project/weft/store/internal/talktest"
	"github.com/weft-project/weft/store/internal/wire"
)

// spoken are the fakes that differ in how a wait is given up: Weft's mode, CANCEL_WAIT, and
// nothing.
var spoken = []string{"weft", "2.6", "1.13"}

func serve(t *testing.T, cfg server.Config) *server.Server {
	t.Helper()
	s, err := server.Serve(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// inEach runs a test in a bubble of its own, with a server of each kind and a client of it.
func inEach(t *testing.T, names []string, test func(t *testing.T, f *fake, cl *Client)) {
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, name)
				test(t, f, f.client(Config{}))
			})
		})
	}
}

func TestAWaitOverTheWireEndsExactlyAtItsDeadline(t *testing.T) {
	inEach(t, spoken, func(t *testing.T, f *fake, cl *Client) {
		start := time.Now()
		err := cl.Wait(t.Context(), "k1", "k2")
		require.Equal(t, kv.DefaultTimeout, time.Since(start))
		require.EqualError(t, err, "store fake:1: wait: wait timeout after 300000ms, keys: /k1, /k2")
		require.ErrorIs(t, err, kv.ErrTimeout)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		synctest.Wait() // until the connection is back
		c, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start = time.Now()
		_, err = cl.Get(c, "nonexistant key")
		require.Equal(t, 100*time.Millisecond, time.Since(start))
		require.ErrorContains(t, err, "wait timeout after 100ms, keys: /nonexistant key")

		synctest.Wait()
		require.Zero(t, f.stats().Waiters, "the server has forgotten the waits")
		kept := 1
		if f.dialect == wire.Dialect113 {
			kept = 0
		}
		require.Len(t, f.conns, kept, "a connection is kept exactly where a wait can be taken back")
	})
}

func TestATimeoutDoesNotBreakTheClient(t *testing.T) {
	inEach(t, spoken, func(t *testing.T, f *fake, cl *Client) {
		for range 3 {
			c, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			_, err := cl.Get(c, "k")
			require.ErrorIs(t, err, kv.ErrTimeout)
			f.set("/k", "late") // its answer must not be taken for that of what comes
			require.ErrorIs(t, cl.Wait(c, "k"), kv.ErrTimeout)
			cancel()
			v, err := cl.Get(t.Context(), "k")
			require.NoError(t, err)
			require.Equal(t, "late", string(v))
			there, err := cl.Delete(t.Context(), "k")
			require.NoError(t, err)
			require.True(t, there)
		}
	})
}

// A wait that is given up at the moment at which it ends, over and over: whatever the order is in
// which the server sees it, every answer belongs to its question.
func TestAWaitThatEndsWhileItIsTakenBackLeavesNothingBehind(t *testing.T) {
	for _, name := range []string{"weft", "2.6", "2.15"} {
		f := newFake(t, name)
		cl := f.client(Config{MaxIdle: 1})
		for i := range 300 {
			key := "k" + strconv.Itoa(i)
			c, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() {
				v, err := cl.Get(c, key)
				if err == nil && string(v) != "v"+key {
					err = fmt.Errorf("got %q", v)
				}
				done <- err
			}()
			go f.set("/"+key, "v"+key)
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				require.NoError(t, err)
			}
			n, err := cl.Add(t.Context(), "n", 1)
			require.NoError(t, err)
			require.Equal(t, int64(i+1), n)
		}
	}
}

func TestAWaitHoldsUpNoOtherOperation(t *testing.T) {
	inEach(t, spoken, func(t *testing.T, f *fake, cl *Client) {
		done := make(chan error)
		for i := range 10 {
			go func() { done <- cl.Wait(t.Context(), "k"+strconv.Itoa(i%2)) }()
		}
		synctest.Wait()
		require.Equal(t, 10, f.stats().Waiters)
		require.NoError(t, cl.Set(t.Context(), "k0", nil))
		require.NoError(t, cl.Set(t.Context(), "k1", nil))
		for range 10 {
			require.NoError(t, <-done)
		}
		synctest.Wait()
		require.LessOrEqual(t, len(f.conns), 4, "only a few connections are kept")
		require.Len(t, cl.live, len(f.conns))
	})
}

func TestAThousandGoroutinesWaitWithOneClient(t *testing.T) {
	s := serve(t, server.Config{})
	cl, err := Dial(t.Context(), Config{Addr: s.Addr()})
	require.NoError(t, err)
	defer cl.Close()
	other, err := Dial(t.Context(), Config{Addr: s.Addr()})
	require.NoError(t, err)
	defer other.Close()
	const waiting = 1000
	c, cancel := context.WithCancel(t.Context())
	defer cancel()
	errs := make(chan error, waiting)
	for i := range waiting {
		go func() {
			if i%10 == 9 {
				errs <- cl.Wait(c, "never")
				return
			}
			v, err := cl.Get(c, "k"+strconv.Itoa(i%100))
			if err == nil && string(v) != strconv.Itoa(i%100) {
				err = fmt.Errorf("got %q", v)
			}
			errs <- err
		}()
	}
	for i := range 100 {
		require.NoError(t, other.Set(c, "k"+strconv.Itoa(i), []byte(strconv.Itoa(i))))
	}
	for range waiting * 9 / 10 {
		require.NoError(t, <-errs)
	}
	cancel()
	for range waiting / 10 {
		require.ErrorIs(t, <-errs, context.Canceled)
	}
	require.LessOrEqual(t, len(cl.idle), 4)
}

func TestAWaiterIsWokenByACompareSetThatCreatesItsKey(t *testing.T) {
	inEach(t, spoken, func(t *testing.T, f *fake, cl *Client) {
		done := make(chan error)
		go func() { done <- cl.Wait(t.Context(), "k") }()
		synctest.Wait()
		_, err := cl.CompareSet(t.Context(), "k", nil, []byte("v"))
		require.NoError(t, err)
		require.NoError(t, <-done)
	})
}

// taped records what the client sends.
type taped struct {
	net.Conn
	mu   *sync.Mutex
	sent *[]byte
}

func (c taped) Write(b []byte) (int, error) {
	c.mu.Lock()
	*c.sent = append(*c.sent, b...)
	c.mu.Unlock()
	return c.Conn.Write(b)
}

func requireBytes(t *testing.T, want string, got []byte) {
	t.Helper()
	require.Equal(t, hex.EncodeToString(talktest.Unhex(t, want)), hex.EncodeToString(got))
}

// tape is a client of a fake, and what it has sent.
func tape(t *testing.T, f *fake, cfg Config) (*Client, *[]byte) {
	var mu sync.Mutex
	sent := new([]byte)
	cfg.Addr = "fake:1"
	cfg.dial = func(c context.Context, addr string) (net.Conn, error) {
		nc, err := f.dial(c, addr)
		return taped{nc, &mu, sent}, err
	}
	cl, err := Dial(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { cl.Close() })
	return cl, sent
}

func TestTheClientSpeaksTheCapturedBytes(t *testing.T) {
	c := t.Context()
	cl, sent := tape(t, newFake(t, "1.13"), Config{WorldSize: 2, Dialect: wire.Dialect113})
	require.NoError(t, cl.Set(c, "k", []byte("v")))
	require.NoError(t, cl.Wait(c, "k"))
	_, err := cl.Add(c, "n", 5)
	require.NoError(t, err)
	_, err = cl.NumKeys(c)
	require.NoError(t, err)
	_, err = cl.Delete(c, "k")
	require.NoError(t, err)
	want := "03 05 00*7 'init/' 01 00*7" +
		" 00 02 00*7 '/k' 01 00*7 'v' 04 00*8" + // the set, and the empty check that confirms it
		" 05 01 00*7 02 00*7 '/k'" +
		" 03 02 00*7 '/n' 05 00*7 06 08 02 00*7 '/k'"
	requireBytes(t, want, *sent)
}

// The bytes that test_client_connect of PyTorch's suite expects, and what we ask on top.
func TestTheClientConnectsAsPyTorchsDoes(t *testing.T) {
	for _, cfg := range []Config{{}, {Dialect: wire.Dialect22}} {
		_, sent := tape(t, newFake(t, "2.6"), cfg)
		require.Len(t, *sent, 33)
		requireBytes(t, "00 ce f7 85 3c 0d", (*sent)[:6])
		require.Equal(t, byte(0xff), (*sent)[8], "or a server of 1.13 would wait for a long key")
		requireBytes(t, "05 01 00*7 06 00*7 'weft/1'", (*sent)[10:])
	}
}

// A server of 1.13 reads every greeting but its own as a SET. Its key must be so long that nobody
// has the memory.
func TestAnOldServerHangsUpAtAGreetingThatItDoesNotKnow(t *testing.T) {
	for range 100 {
		cl, sent := tape(t, newFake(t, "1.13"), Config{})
		require.Equal(t, []greeting{greetProbe}, cl.ways)
		for _, length := range [][]byte{(*sent)[1:9], (*sent)[34:42]} {
			require.Equal(t, hex.EncodeToString(talktest.Unhex(t, "ce f7 85 3c")), hex.EncodeToString(length[:4]))
			require.GreaterOrEqual(t, length[7], byte(7), "%x: 2^58 bytes are more than there can be", length)
		}
		cl.Close()
	}
}

func TestTheClientFindsOutWhatTheServerSpeaks(t *testing.T) {
	for name, want := range map[string]wire.Protocol{
		"1.13": {Dialect: wire.Dialect113}, "2.4": {Dialect: wire.Dialect22}, "2.6": {Dialect: wire.Dialect22}, "weft": {Dialect: wire.Dialect22, Own: true},
	} {
		f := newFake(t, name)
		cl := f.client(Config{})
		require.Equal(t, want, cl.idle[0].in.Protocol, name)
		dialed := f.dialed
		cl.dropIdle()
		require.NoError(t, cl.Set(t.Context(), "k", nil))
		require.Equal(t, dialed+1, f.dialed, "and remembers it")
	}
}

func TestAServerThatIsShutDownIsNotTakenForAnOldOne(t *testing.T) {
	inEach(t, []string{"weft"}, func(t *testing.T, f *fake, cl *Client) {
		f.stop()
		go func() {
			time.Sleep(time.Minute)
			f.start()
		}()
		require.NoError(t, cl.Set(t.Context(), "k", nil))
		require.True(t, cl.idle[0].in.Own)
	})
}

func TestDialTriesUntilThereIsAServer(t *testing.T) {
	inEach(t, spoken, func(t *testing.T, f *fake, cl *Client) {
		start, refused := time.Now(), errors.New("connection refused")
		dial := func(c context.Context, addr string) (net.Conn, error) {
			if time.Since(start) < 10*time.Second {
				return nil, refused
			}
			return f.dial(c, addr)
		}
		c, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := Dial(c, Config{Addr: "late:1", dial: dial})
		require.ErrorIs(t, err, kv.ErrUnreachable)
		require.ErrorIs(t, err, kv.ErrTimeout)
		require.ErrorContains(t, err, "client socket has timed out after 2s while trying to connect to late:1")
		require.ErrorContains(t, err, "connection refused")
		require.Equal(t, 2*time.Second, time.Since(start))

		late, err := Dial(t.Context(), Config{Addr: "late:1", dial: dial})
		require.NoError(t, err)
		require.Less(t, time.Since(start), 12*time.Second)
		require.NoError(t, late.Close())
	})
}

// test_dns_timeout
func TestANameThatDoesNotExistIsLookedUpUntilTheTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := Dial(t.Context(), Config{Addr: "dnsnotexist:23456", Timeout: time.Second,
			dial: func(context.Context, string) (net.Conn, error) {
				return nil, &net.DNSError{Err: "no such host", Name: "dnsnotexist", IsNotFound: true}
			}})
		require.ErrorIs(t, err, kv.ErrUnreachable)
		require.Regexp(t, "client socket has timed out after.*dnsnotexist", err.Error())
	})
}

func TestADialThatIsCancelledSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := Dial(c, Config{Addr: "nobody:1", dial: func(context.Context, string) (net.Conn, error) {
			return nil, errors.New("connection refused")
		}})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, kv.ErrUnreachable)
		require.ErrorContains(t, err, "gave up trying to connect to nobody:1")
		require.ErrorContains(t, err, "connection refused")
	})
}

// test_store_timeout_on_missing_clients
func TestTheHostWaitsForAllWorkers(t *testing.T) {
	inEach(t, spoken, func(t *testing.T, f *fake, _ *Client) {
		cfg := Config{Addr: "fake:1", WorldSize: 2, dial: f.dial}
		host := cfg
		host.WaitForWorkers, host.Timeout = true, 3*time.Second
		_, err := Dial(t.Context(), host)
		require.ErrorIs(t, err, kv.ErrTimeout)
		require.ErrorContains(t, err, "Timed out after 3 seconds waiting for clients. 1/2 clients joined.")
		worker, err := Dial(t.Context(), cfg) // who is not the host does not wait
		require.NoError(t, err)
		defer worker.Close()
		n, err := worker.NumKeys(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(1), n)
		again, err := Dial(t.Context(), host)
		require.NoError(t, err)
		require.NoError(t, again.Close())
	})
}

func TestABadClientConfigIsRefusedWithAllItsFaults(t *testing.T) {
	_, err := Dial(t.Context(), Config{Addr: "nonsense", WaitForWorkers: true, MaxIdle: -1, Dialect: 99})
	for _, part := range []string{"missing port", "needs a WorldSize", "MaxIdle", "no dialect 99"} {
		require.ErrorContains(t, err, part)
	}
	_, err = Dial(t.Context(), Config{Addr: "a:1", WorldSize: -1})
	require.ErrorContains(t, err, "WorldSize")
}

func BenchmarkTCP(b *testing.B) {
	s, err := server.Serve(server.Config{})
	require.NoError(b, err)
	defer s.Close()
	cl, err := Dial(b.Context(), Config{Addr: s.Addr()})
	require.NoError(b, err)
	defer cl.Close()
	c, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	v := []byte("8 bytes!")
	b.Run("op=set", func(b *testing.B) {
		for b.Loop() {
			require.NoError(b, cl.Set(c, "k", v))
		}
	})
	b.Run("op=get", func(b *testing.B) {
		for b.Loop() {
			cl.Get(c, "k")
		}
	})
	b.Run("op=add", func(b *testing.B) {
		for b.Loop() {
			cl.Add(c, "n", 1)
		}
	})
	b.Run("op=add/clients=16", func(b *testing.B) {
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				cl.Add(c, "n", 1)
			}
		})
	})
}

package store

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// pipeClient is a client and its server without a network, so that time can be synctest's.
func pipeClient(t *testing.T) (*Client, *Server) {
	s, connect := pipeServer(t)
	cl, err := Dial(t.Context(), ClientConfig{Addr: "sim:1", dial: func(context.Context, string) (net.Conn, error) {
		return connect(), nil
	}})
	require.NoError(t, err)
	t.Cleanup(func() { cl.Close() })
	return cl, s
}

func TestAWaitOverTheWireEndsExactlyAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl, s := pipeClient(t)
		start := time.Now()
		err := cl.Wait(t.Context(), "k1", "k2")
		require.Equal(t, DefaultTimeout, time.Since(start))
		require.EqualError(t, err, "store sim:1: wait: wait timeout after 300000ms, keys: /k1, /k2")
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		c, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start = time.Now()
		_, err = cl.Get(c, "nonexistant key")
		require.Equal(t, 100*time.Millisecond, time.Since(start))
		require.ErrorContains(t, err, "wait timeout after 100ms, keys: /nonexistant key")

		synctest.Wait()
		require.Zero(t, s.state.stats().waiters, "the server has forgotten the waits")
		require.Empty(t, s.peers)
	})
}

func TestAWaitHoldsUpNoOtherOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl, s := pipeClient(t)
		done := make(chan error)
		for i := range 10 {
			go func() { done <- cl.Wait(t.Context(), "k"+strconv.Itoa(i%2)) }()
		}
		synctest.Wait()
		require.Equal(t, 10, s.state.stats().waiters)
		require.NoError(t, cl.Set(t.Context(), "k0", nil))
		require.NoError(t, cl.Set(t.Context(), "k1", nil))
		for range 10 {
			require.NoError(t, <-done)
		}
		synctest.Wait()
		require.LessOrEqual(t, len(s.peers), 4, "only a few connections are kept")
		require.Len(t, cl.live, len(s.peers))
	})
}

func TestAWaiterIsWokenByACompareSetThatCreatesItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl, _ := pipeClient(t)
		done := make(chan error)
		go func() { done <- cl.Wait(t.Context(), "k") }()
		synctest.Wait()
		_, err := cl.CompareSet(t.Context(), "k", nil, []byte("v"))
		require.NoError(t, err)
		require.NoError(t, <-done)
	})
}

func TestAWaiterIsWokenAndAnotherGoesOnWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		done := make(chan string)
		for _, k := range []string{"a", "b"} {
			go func() {
				v, err := m.Get(t.Context(), k)
				require.NoError(t, err)
				done <- string(v)
			}()
		}
		synctest.Wait()
		require.NoError(t, m.Set(t.Context(), "b", []byte("second")))
		require.Equal(t, "second", <-done)
		require.NoError(t, m.Set(t.Context(), "a", []byte("first")))
		require.Equal(t, "first", <-done)
	})
}

func TestAMemoryStoreTimesOutExactlyAndForgetsTheWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, m := range []*Memory{NewMemory(), {Timeout: time.Minute}} {
			want := cmp.Or(m.Timeout, DefaultTimeout)
			start := time.Now()
			_, err := m.Get(t.Context(), "k")
			require.ErrorIs(t, err, ErrTimeout)
			require.Equal(t, want, time.Since(start))
			require.ErrorContains(t, err, "wait timeout after "+strconv.Itoa(int(want.Milliseconds()))+"ms, keys: /k")
			require.Zero(t, m.state.stats().waiters)
			require.Empty(t, m.waiting)
		}
	})
}

func TestAViewThatIsClosedEndsItsWaitersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		p, q := NewPrefix("p", m), NewPrefix("p", m)
		done := make(chan error)
		go func() { done <- p.Wait(t.Context(), "k") }()
		other := make(chan error)
		go func() { other <- q.Wait(t.Context(), "k") }()
		synctest.Wait()
		require.NoError(t, p.Close())
		require.ErrorIs(t, <-done, ErrClosed)
		require.NoError(t, m.Set(t.Context(), "p/k", nil))
		require.NoError(t, <-other)
		require.Same(t, m, q.Underlying())
	})
}

// scripted is a server that answers each connection with the same bytes, once it has read something, and hangs up.
func scripted(t testing.TB, answer []byte) *Client {
	cl, err := Dial(context.Background(), ClientConfig{Addr: "sim:1", Limits: Limits{Value: 256}, Timeout: 5 * time.Second,
		dial: func(context.Context, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				defer far.Close()
				if _, err := far.Read(make([]byte, 4096)); err == nil {
					go io.Copy(io.Discard, far)
					far.Write(answer)
				}
			}()
			return near, nil
		}})
	require.NoError(t, err)
	return cl
}

func TestAServerThatAnswersNonsenseIsNotBelieved(t *testing.T) {
	c := t.Context()
	for name, tc := range map[string]struct {
		answer string
		want   error
		ask    func(*Client) error
	}{
		"neither ready nor not":  {"02", ErrProtocol, func(cl *Client) error { _, err := cl.Check(c, "k"); return err }},
		"a wait cancelled":       {"01", ErrProtocol, func(cl *Client) error { return cl.Wait(c, "k") }},
		"a value too long":       {"01 01 00*6", ErrProtocol, func(cl *Client) error { _, err := cl.CompareSet(c, "k", nil, nil); return err }},
		"2^63 bytes":             {"00*7 80", ErrProtocol, func(cl *Client) error { _, err := cl.CompareSet(c, "k", nil, nil); return err }},
		"half a number":          {"00*3", ErrUnreachable, func(cl *Client) error { _, err := cl.NumKeys(c); return err }},
		"half a value":           {"05 00*7 'hal'", ErrUnreachable, func(cl *Client) error { _, err := cl.CompareSet(c, "k", nil, nil); return err }},
		"nothing, to an add":     {"", ErrUnreachable, func(cl *Client) error { _, err := cl.Add(c, "k", 1); return err }},
		"nothing, to a get":      {"00", ErrUnreachable, func(cl *Client) error { _, err := cl.Get(c, "k"); return err }},
		"nothing, to a set":      {"", ErrUnreachable, func(cl *Client) error { return cl.Set(c, "k", nil) }},
		"not ready, to a delete": {"01", ErrUnreachable, func(cl *Client) error { _, err := cl.Delete(c, "k"); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			cl := scripted(t, unhex(t, tc.answer))
			defer cl.Close()
			err := tc.ask(cl)
			require.ErrorIs(t, err, tc.want)
			var typed *Error
			require.ErrorAs(t, err, &typed)
			require.Equal(t, "sim:1", typed.Addr)
		})
	}
}

func FuzzReplies(f *testing.F) {
	for _, x := range captured {
		f.Add(unhex(f, x.answer))
	}
	f.Add(unhex(f, "ff*8"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		cl := scripted(t, answer)
		defer cl.Close()
		c := t.Context()
		v, err := cl.Get(c, "k")
		require.LessOrEqual(t, len(v), 256)
		require.True(t, err == nil || v == nil)
		cl.Add(c, "k", 1)
		cl.Check(c, "k")
		cl.Wait(c, "k")
		cl.NumKeys(c)
		v, _ = cl.CompareSet(c, "k", nil, nil)
		require.LessOrEqual(t, len(v), 256)
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

func TestTheClientSpeaksTheCapturedBytes(t *testing.T) {
	_, connect := pipeServer(t)
	var mu sync.Mutex
	var sent []byte
	c := t.Context()
	cl, err := Dial(c, ClientConfig{Addr: "sim:1", WorldSize: 2, dial: func(context.Context, string) (net.Conn, error) {
		return taped{connect(), &mu, &sent}, nil
	}})
	require.NoError(t, err)
	defer cl.Close()
	require.NoError(t, cl.Set(c, "k", []byte("v")))
	_, err = cl.Get(c, "k")
	require.NoError(t, err)
	_, err = cl.Add(c, "n", 5)
	require.NoError(t, err)
	_, err = cl.NumKeys(c)
	require.NoError(t, err)
	_, err = cl.Delete(c, "k")
	require.NoError(t, err)
	want := "03 05 00*7 'init/' 01 00*7" +
		" 00 02 00*7 '/k' 01 00*7 'v' 04 00*8" + // the set, and the empty check that confirms it
		" 05 01 00*7 02 00*7 '/k' 02 02 00*7 '/k'" +
		" 03 02 00*7 '/n' 05 00*7 06 08 02 00*7 '/k'"
	require.Equal(t, hex.EncodeToString(unhex(t, want)), hex.EncodeToString(sent))
}

func TestGetStartsAgainIfTheKeyIsDeletedBeforeItIsRead(t *testing.T) {
	s, connect := pipeServer(t)
	conns := 0
	cl, err := Dial(t.Context(), ClientConfig{Addr: "sim:1", dial: func(context.Context, string) (net.Conn, error) {
		if conns++; conns > 1 {
			return connect(), nil
		}
		near, far := net.Pipe()
		go func() { // what a server does when the key was there for the wait and not for the get
			far.Read(make([]byte, 64))
			far.Write([]byte{byteStop})
			far.Read(make([]byte, 64))
			far.Close()
		}()
		return near, nil
	}})
	require.NoError(t, err)
	defer cl.Close()
	s.mu.Lock()
	s.state.apply(99, command{op: opSet, key: "/k", value: []byte("again")}, nil)
	s.mu.Unlock()
	v, err := cl.Get(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, "again", string(v))
}

func TestDialTriesUntilThereIsAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, connect := pipeServer(t)
		start, refused := time.Now(), errors.New("connection refused")
		dial := func(context.Context, string) (net.Conn, error) {
			if time.Since(start) < 10*time.Second {
				return nil, refused
			}
			return connect(), nil
		}
		c, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := Dial(c, ClientConfig{Addr: "late:1", dial: dial})
		require.ErrorIs(t, err, ErrUnreachable)
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorContains(t, err, "client socket has timed out after 2s while trying to connect to late:1")
		require.ErrorContains(t, err, "connection refused")
		require.Equal(t, 2*time.Second, time.Since(start))

		cl, err := Dial(t.Context(), ClientConfig{Addr: "late:1", dial: dial})
		require.NoError(t, err)
		require.Less(t, time.Since(start), 12*time.Second)
		require.NoError(t, cl.Close())
	})
}

func TestTheHostWaitsForAllWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, connect := pipeServer(t)
		cfg := ClientConfig{Addr: "sim:1", WorldSize: 2, dial: func(context.Context, string) (net.Conn, error) {
			return connect(), nil
		}}
		host := cfg
		host.WaitForWorkers, host.Timeout = true, 3*time.Second
		_, err := Dial(t.Context(), host)
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorContains(t, err, "timed out after 3s waiting for clients. 1/2 clients joined.")
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

func TestAClientWhoseServerIsGoneFailsAtOnce(t *testing.T) {
	s, err := Serve(ServerConfig{})
	require.NoError(t, err)
	cl, err := Dial(t.Context(), ClientConfig{Addr: s.Addr()})
	require.NoError(t, err)
	defer cl.Close()
	done := make(chan error)
	go func() { done <- cl.Wait(context.Background(), "never") }()
	require.NoError(t, cl.Set(t.Context(), "k", nil))
	require.NoError(t, s.Close())
	require.ErrorIs(t, <-done, ErrUnreachable)
	for range 3 {
		_, err = cl.Add(t.Context(), "k", 1)
		require.ErrorIs(t, err, ErrUnreachable)
		_, err = cl.Get(t.Context(), "k")
		require.ErrorIs(t, err, ErrUnreachable)
	}
}

func TestABadClientConfigIsRefusedWithAllItsFaults(t *testing.T) {
	_, err := Dial(t.Context(), ClientConfig{Addr: "nonsense", WaitForWorkers: true, MaxIdle: -1})
	for _, part := range []string{"missing port", "needs a WorldSize", "MaxIdle"} {
		require.ErrorContains(t, err, part)
	}
	_, err = Dial(t.Context(), ClientConfig{Addr: "a:1", WorldSize: -1})
	require.ErrorContains(t, err, "WorldSize")
}

func TestALongListOfKeysIsCutInErrors(t *testing.T) {
	keys := make([]string, 20)
	for i := range keys {
		keys[i] = "k" + strconv.Itoa(i)
	}
	msg := keysTimeout("wait", time.Second, keys).Error()
	require.Contains(t, msg, "/k15 and 4 more")
	require.NotContains(t, msg, "k16")
	require.Less(t, len((&Error{Op: "set", Key: string(make([]byte, 8000)), Err: ErrClosed}).Error()), 1000)
}

func BenchmarkTCP(b *testing.B) {
	s, err := Serve(ServerConfig{})
	require.NoError(b, err)
	defer s.Close()
	cl, err := Dial(b.Context(), ClientConfig{Addr: s.Addr()})
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

package rpc

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// tap passes connections on to a store, and notes the first byte of each.
type tap struct {
	net.Listener
	to string

	mu    sync.Mutex
	first []byte
	open  []net.Conn
	wg    sync.WaitGroup
}

func newTap(t *testing.T, to string) *tap {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &tap{Listener: l, to: to}
	p.wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.pass(nc) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for _, nc := range p.open {
			nc.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

func (p *tap) pass(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer to.Close()
	var b [1]byte
	if _, err := io.ReadFull(from, b[:]); err != nil {
		return
	}
	p.mu.Lock()
	p.first = append(p.first, b[0])
	p.open = append(p.open, from, to)
	p.mu.Unlock()
	if _, err := to.Write(b[:]); err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(from, to)
		from.Close()
	})
	_, _ = io.Copy(to, from)
	to.Close()
	back.Wait()
}

// Nobody tells them so: each knows it by the secret that all have.
func TestWorkersWithASecretSpeakTLSWithTheStoreThatRank0HostsOnLoopback(t *testing.T) {
	leak.Check(t)
	t.Setenv(StoreTLSVariable, "")
	t.Setenv("TORCHELASTIC_USE_AGENT_STORE", "")
	addr := proctest.Address()
	p := newTap(t, addr)
	cfg := Config{Token: testToken, Functions: []Function{double}, JoinTimeout: time.Minute, Logger: discard}
	first := make(chan error, 1)
	var w0 *Worker
	host := cfg
	host.Init = "tcp://" + addr + "?rank=0&world_size=2"
	go func() {
		var err error
		w0, err = Join(t.Context(), host)
		first <- err
	}()
	cfg.Init = "tcp://" + p.Addr().String() + "?rank=1&world_size=2"
	w1, err := Join(t.Context(), cfg)
	require.NoError(t, err)
	require.NoError(t, <-first)
	n, err := double.Call(w1.Context(t.Context()), "worker0", 21)
	require.NoError(t, err)
	require.Equal(t, 42, n)
	p.mu.Lock()
	require.NotEmpty(t, p.first)
	for _, b := range p.first {
		require.Equal(t, byte(0x16), b, "the first byte of TLS")
	}
	p.mu.Unlock()

	plain, err := store.Dial(t.Context(), store.ClientConfig{Addr: addr})
	require.NoError(t, err, "this machine's own processes need no TLS")
	keys, err := plain.NumKeys(t.Context())
	require.NoError(t, err)
	require.Zero(t, keys, "but they see nothing of the job")
	require.NoError(t, plain.Close())

	stranger := cfg
	stranger.Token = otherToken
	c, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = Join(c, stranger)
	require.ErrorIs(t, err, transport.ErrIdentity)
	require.NoError(t, c.Err(), "it does not try until its time is over")
	leaveAll(t, []*Worker{w0, w1})
}

func TestWorkersOfWhichSomeSpeakTLSWithTheirStoreAreToldSo(t *testing.T) {
	leak.Check(t)
	t.Setenv("TORCHELASTIC_USE_AGENT_STORE", "")
	for host, says := range map[string][2]string{
		"1": {"; this worker speaks TLS with its store, and sees none that does not", "; this worker speaks plain text with its store, and sees none that speaks TLS"},
		"0": {"", "$WEFT_STORE_TLS=0 is for one that has no TLS, as PyTorch's"},
	} {
		addr := proctest.Address()
		cfg := Config{Token: testToken, JoinTimeout: time.Second, Logger: discard}
		first, second := cfg, cfg
		first.Init, second.Init = "tcp://"+addr+"?rank=0&world_size=2", "tcp://"+addr+"?rank=1&world_size=2"
		t.Setenv(StoreTLSVariable, host)
		joined := make(chan error, 1)
		go func() {
			_, err := Join(t.Context(), first)
			joined <- err
		}()
		eventually(t, "rank 0 hosts the store", func() bool {
			nc, err := net.Dial("tcp", addr)
			if err == nil {
				nc.Close()
			}
			return err == nil
		})
		t.Setenv(StoreTLSVariable, map[string]string{"1": "0", "0": "1"}[host])
		_, err := Join(t.Context(), second)
		require.ErrorContains(t, err, says[1])
		require.Equal(t, host == "0", errors.Is(err, store.ErrNotTLS), "the store says that itself: %v", err)
		require.Equal(t, host == "1", errors.Is(err, context.DeadlineExceeded), err)
		err = <-joined
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, says[0])
	}
	t.Setenv(StoreTLSVariable, "1") // one that is stopped while it waits for a store
	c, stop := context.WithCancel(t.Context())
	stop()
	_, err := Join(c, Config{Token: testToken, Logger: discard, Init: "tcp://" + proctest.Address() + "?rank=1&world_size=2"})
	require.ErrorIs(t, err, context.Canceled)
	require.NotContains(t, err.Error(), StoreTLSVariable, "nobody has said anything yet")
}

func TestWhoSpeaksTLSWithTheStoreFollowsFromItsHostAndTheEnvironment(t *testing.T) {
	for _, c := range []struct {
		url, master, variable, agent string
		want                         bool
	}{
		{"tcp://127.0.0.1:1?rank=0", "", "", "", true},
		{"tcp://[::1]:1", "", "", "", true},
		{"tcp://localhost:1", "", "", "", true},
		{"tcp://127.0.0.1:1", "", "0", "", false}, // for a store that PyTorch hosts
		{"tcp://127.0.0.1:1", "", "", "True", false},
		{"tcp://10.0.0.1:1", "", "", "", true},
		{"tcp://node7:1", "", "", "", true},
		{"tcp://node7:1", "", "0", "", false},
		{"tcp://127.0.0.1:1", "", "1", "", true},
		{"env://", "node7", "", "", true},
		{"env://", "127.0.0.1", "", "", true},
		{"env://", "127.0.0.1", "0", "", false},
		{"env://", "127.0.0.1", "", "True", false},
		{"env://", "", "", "", false}, // Open says what is missing
		{"env://", "node7", "false", "", false},
		{"env://", "node7", "", "True", false}, // torchrun's agent has no TLS
		{"env://", "127.0.0.1", "1", "True", true},
		{"file:///tmp/x", "node7", "", "", false},
		{"::", "node7", "", "", false},
	} {
		t.Setenv("WEFT_TOKEN", testToken)
		t.Setenv("MASTER_ADDR", c.master)
		t.Setenv(StoreTLSVariable, c.variable)
		t.Setenv("TORCHELASTIC_USE_AGENT_STORE", c.agent)
		conf, err := (&prepared{Config: Config{Logger: discard}}).storeTLS(c.url)
		require.NoError(t, err)
		require.Equal(t, c.want, conf != nil, "%+v", c)
	}
}

func TestTLSWithAStoreNeedsAnIdentity(t *testing.T) {
	t.Setenv("WEFT_TOKEN", "")
	t.Setenv("MASTER_ADDR", "127.0.0.1")
	t.Setenv(StoreTLSVariable, "1")
	_, err := StoreTLSFromEnv()
	require.ErrorContains(t, err, "($WEFT_STORE_TLS): the job has no token")
	t.Setenv(StoreTLSVariable, "perhaps")
	_, err = StoreTLSFromEnv()
	require.ErrorContains(t, err, `$WEFT_STORE_TLS: expected 1 or 0, got "perhaps"`)
	t.Setenv(StoreTLSVariable, "")
	conf, err := StoreTLSFromEnv()
	require.NoError(t, err)
	require.Nil(t, conf)
}

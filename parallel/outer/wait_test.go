package outer

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/internal/secret/secrettest"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
)

// alone is an epoch of one worker.
func alone(t *testing.T, epoch int) *elastic.Epoch {
	st := store.NewMemory()
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	return &elastic.Epoch{Place: elastic.Place{World: 1, Epoch: epoch, Addr: "127.0.0.1", Over: make(chan struct{})}, Store: st}
}

func TestAWorkerThatCannotListenEndsAtOnceWithTheCause(t *testing.T) {
	t.Setenv(elastic.TokenVariable, secrettest.Token("job"))
	taken, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for listen, why := range map[string]string{
		taken.LocalAddr().String(): "bind: ",
		"192.0.2.1:0":              "bind: ", // an address of no machine
		"127.0.0.1:65536":          "invalid port",
		"127.0.0.1":                "expected host:port",
	} {
		l, err := newLoop(newParams(0), Config{Listen: listen})
		require.NoError(t, err)
		final, err := l.attend(t.Context(), alone(t, 1), join, func(context.Context, *elastic.Epoch, *Loop) error { panic("it has no links") })
		require.ErrorContains(t, err, why, listen)
		require.ErrorContains(t, err, "listen at", listen)
		require.True(t, final, listen)
		require.NoError(t, l.Close())
	}
}

func TestAWorkerListensAtTheSamePortInEveryEpoch(t *testing.T) {
	t.Setenv(elastic.TokenVariable, secrettest.Token("job"))
	free, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, free.Close())
	l, err := newLoop(newParams(0), Config{Listen: free.LocalAddr().String()})
	require.NoError(t, err)
	defer l.Close()
	for epoch := range 5 {
		ends := error(nil)
		if epoch%2 == 0 {
			ends = rpc.ErrTimeout // it is not told to the others that it leaves
		}
		_, err := l.attend(t.Context(), alone(t, epoch), join, func(context.Context, *elastic.Epoch, *Loop) error { return ends })
		require.ErrorIs(t, err, ends)
	}
}

// lines is where a logger writes, from several goroutines.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// TestWhoWaitsForTheNodesSaysWhy kills two of four at once, and the nodes notice that later.
func TestWhoWaitsForTheNodesSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, said := newCamp(t, 1, Config{Every: 5}, 20), new(lines)
		m.cfg.Logger = slog.New(slog.NewTextHandler(said, nil))
		for range 4 {
			m.start()
		}
		m.form()
		time.Sleep(time.Second)
		require.Empty(t, said.String())
		require.NotNil(t, m.slay(anybody))
		require.NotNil(t, m.slay(anybody))
		time.Sleep(4 * time.Second)
		const why = "level=WARN msg=\"2 of 4 workers are left; waiting until the nodes have agreed\" epoch=1 error="
		require.Equal(t, 2, strings.Count(said.String(), why), said.String())
		require.Equal(t, 2, strings.Count(said.String(), "\n"), said.String())
		m.form()
		m.end()
		require.Empty(t, m.failed)
		require.Equal(t, 2, strings.Count(said.String(), "\n"), said.String())
	})
}

package transport_test

import (
	"bufio"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/internal/transporttest"
)

func bulkOnly(t testing.TB) (dialer, listener transport.Network) {
	cfg := transport.Config{Lanes: []string{transport.LaneBulk}}
	return network(t, cfg), network(t, cfg)
}

func TestALinkWithBulkIsANetwork(t *testing.T) { transporttest.Run(t, bulkOnly) }

func TestALinkSaysThatItHasBulk(t *testing.T) {
	p := transporttest.Link(t, bulkOnly)
	for _, l := range []transport.Link{p.Dialed, p.Served} {
		var names []string
		for _, s := range l.Lanes() {
			if s.Why == "" {
				names = append(names, s.Name)
			}
		}
		require.Equal(t, []string{transport.LaneBulk, transport.LaneQUIC}, names)
	}
}

// The system tells of the end of a connection at once, where QUIC waits for a silence of seconds.
func TestAKilledPeerIsLostAtOnceByItsStripes(t *testing.T) {
	leak.Check(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=bulk")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	addr, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	dialer, _ := bulkOnly(t)
	link, err := dialer.Dial(t.Context(), strings.TrimSpace(addr))
	require.NoError(t, err)
	defer link.Close("")
	s, err := link.Open(t.Context())
	require.NoError(t, err)
	x := transporttest.Tensor(t, rand.New(rand.NewPCG(1, 8)), device.Host(), device.Float32, 1<<20)
	defer x.Buf.Release() //nolint:errcheck // the one reference
	m := &transport.Message{Tensors: []transport.Tensor{x}}
	require.NoError(t, s.Send(t.Context(), m))
	sent := make(chan error, 1)
	go func() { sent <- s.Send(t.Context(), m) }() // the child takes one
	killed := time.Now()
	require.NoError(t, cmd.Process.Kill())
	<-link.Done()
	require.ErrorIs(t, link.Err(), transport.ErrPeerLost)
	require.ErrorIs(t, <-sent, transport.ErrPeerLost)
	require.Less(t, time.Since(killed), 5*time.Second, "before the silence would have been noticed")
}

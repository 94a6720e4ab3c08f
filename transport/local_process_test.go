//go:build linux

package transport_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport"
)

// What localChild does with a message, by its kind.
const (
	doKeep = iota // nothing, and keeps it
	doEcho        // sends it back
	doDrop        // reads all of it, drops it and answers
	doLend        // keeps it, and answers with a tensor of its own
)

// localChild listens, says where, and serves one link.
func localChild() error {
	c := context.Background()
	id, err := transport.IdentityFromToken(token, "job", "child", time.Now)
	if err != nil {
		return err
	}
	n, err := transport.New(transport.Config{Identity: id, IdleTimeout: time.Hour}) // the other end may have less
	if err != nil {
		return err
	}
	l, err := n.Listen(c, "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	link, err := l.Accept(c)
	if err != nil {
		return err
	}
	var kept []*transport.Message
	for {
		s, err := link.Accept(c)
		if err != nil {
			fmt.Fprintln(os.Stdout, len(kept))
			return nil
		}
		for {
			m, err := s.Recv(c, nil)
			if err != nil {
				break
			}
			switch m.Kind {
			case doEcho:
				err = s.Send(c, m)
				m.Release()
			case doDrop:
				for _, x := range m.Tensors {
					if mem, err := x.Buf.Host(); err == nil {
						touch(mem)
					}
				}
				m.Release()
				err = s.Send(c, &transport.Message{})
			case doKeep:
				kept = append(kept, m)
				err = s.Send(c, &transport.Message{})
			case doLend:
				b, aerr := device.Host().Alloc(1 << 20)
				if aerr != nil {
					return aerr
				}
				kept = append(kept, m)
				err = s.Send(c, &transport.Message{Tensors: []transport.Tensor{{Dtype: device.Float32, Shape: device.Shape{1 << 18}, Buf: b}}})
				_ = b.Release() // the loan keeps it
			}
			if err != nil {
				break
			}
		}
		s.Reset(nil)
	}
}

// touch reads something of every page.
func touch(mem []byte) (sum byte) {
	for i := 0; i < len(mem); i += 4096 {
		sum += mem[i]
	}
	return sum
}

func startChildOn(t testing.TB, lane string) (*exec.Cmd, transport.Link) {
	return startChild(t, transport.Config{Lanes: []string{lane}})
}

// startChild starts a peer in a process of its own, and links with it.
func startChild(t testing.TB, cfg transport.Config) (*exec.Cmd, transport.Link) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=local")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	addr, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	link, err := network(t, cfg).Dial(t.Context(), strings.TrimSpace(addr))
	require.NoError(t, err)
	t.Cleanup(func() { _ = link.Close("the test is over") })
	if cfg.Lanes == nil {
		require.Empty(t, link.Lanes()[0].Why)
	}
	return cmd, link
}

// mappings counts the segments of other processes that are mapped here.
func mappings(t testing.TB) int {
	raw, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	n := 0
	for line := range strings.SplitSeq(string(raw), "\n") {
		if strings.Contains(line, "/memfd:weft") && strings.Contains(line, " r--s ") {
			n++
		}
	}
	return n
}

// descriptors lists what is open here, but for the pool's own segments.
func descriptors(t testing.TB) (open []string) {
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, e := range all {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.HasPrefix(to, "/memfd:weft") {
			open = append(open, to)
		}
	}
	return open
}

func TestNothingIsLeftOfAPeerThatIsKilledWithLoansInItsHands(t *testing.T) {
	leak.Check(t)
	before, open := mappings(t), descriptors(t)
	cmd, link := startChild(t, transport.Config{IdleTimeout: time.Hour}) // it is the socket that tells of its end
	var lent []*transport.Message
	s, err := link.Open(t.Context())
	require.NoError(t, err)
	for i := range 100 {
		x := big(t, device.Host())
		require.NoError(t, s.Send(t.Context(), &transport.Message{Kind: []uint8{doKeep, doLend}[i%2], Tensors: []transport.Tensor{x}}))
		m, err := s.Recv(t.Context(), nil)
		require.NoError(t, err)
		require.False(t, x.Buf.Exclusive())
		lent = append(lent, &transport.Message{Tensors: []transport.Tensor{x}}, m)
	}
	require.Greater(t, mappings(t), before)
	require.NoError(t, cmd.Process.Kill())
	_, err = s.Recv(t.Context(), nil)
	require.ErrorIs(t, err, transport.ErrPeerLost)
	for _, m := range lent {
		for _, x := range m.Tensors {
			if !x.Buf.ReadOnly() {
				eventually(t, x.Buf.Exclusive)
			} else {
				mem, err := x.Buf.Host()
				require.NoError(t, err)
				require.Zero(t, mem[1<<19], "what it lent can still be read")
			}
		}
		m.Release()
	}
	_ = cmd.Wait()
	eventually(t, func() bool { return mappings(t) == before })
	eventually(t, func() bool { return len(descriptors(t)) <= len(open) })
}

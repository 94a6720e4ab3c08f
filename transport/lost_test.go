package transport_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/transport"
)

const childEnv = "WEFT_TEST_LISTENER"

// TestMain lets the test binary play a peer in a process of its own.
func TestMain(m *testing.M) {
	if mode := os.Getenv(childEnv); mode != "" {
		play := func() error { return child() }
		switch mode {
		case "local":
			play = localChild
		case "bulk":
			play = func() error { return child(transport.LaneBulk) }
		}
		if err := play(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// child listens, says where, takes one stream and never answers.
func child(lanes ...string) error {
	c := context.Background()
	id, err := transport.IdentityFromToken(token, "job", "child", time.Now)
	if err != nil {
		return err
	}
	n, err := transport.New(transport.Config{Identity: id, Lanes: lanes})
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
	s, err := link.Accept(c)
	if err != nil {
		return err
	}
	if _, err := s.Recv(c, nil); err != nil {
		return err
	}
	fmt.Println("received")
	<-link.Done()
	return nil
}

func TestAKilledPeerIsLostWithinThreeSeconds(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewReader(out)
	addr, err := lines.ReadString('\n')
	require.NoError(t, err)

	link, err := network(t, transport.Config{}).Dial(t.Context(), strings.TrimSpace(addr))
	require.NoError(t, err)
	s, err := link.Open(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Send(t.Context(), &transport.Message{}))
	_, err = lines.ReadString('\n')
	require.NoError(t, err)

	killed := time.Now()
	require.NoError(t, cmd.Process.Kill())
	_, err = s.Recv(t.Context(), nil)
	require.ErrorIs(t, err, transport.ErrPeerLost)
	require.Less(t, time.Since(killed), 3*time.Second)
	<-link.Done()
	require.ErrorIs(t, link.Err(), transport.ErrPeerLost)
	require.ErrorIs(t, context.Cause(s.Context()), transport.ErrPeerLost)
	require.ErrorContains(t, link.Err(), strings.TrimSpace(addr))
	_ = cmd.Wait()
	require.Empty(t, stderr.String(), "this package is silent")
}

package main

import (
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
)

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func TestTheHealthOfARunningJobIsServed(t *testing.T) {
	t.Parallel()
	leak.Check(t)
	cmd, out := background(t, "run", "--nproc-per-node=2", "--health-addr=:0", os.Args[0], "wait")
	first := <-out
	url, ok := strings.CutPrefix(first, "weft: health at ")
	require.True(t, ok, first)
	url, _, _ = strings.Cut(url, "/healthz")
	for range 2 {
		require.Contains(t, <-out, "ready")
	}
	for _, page := range []string{"/healthz", "/readyz"} {
		code, text := get(t, url+page)
		require.Equal(t, 200, code)
		require.Equal(t, "round 0, node 0 of 1: of 2 workers 2 run, 0 succeeded, 0 failed\n", text)
	}
	_, text := get(t, url+"/metrics")
	for _, line := range []string{"weft_agent_up 1", "weft_agent_ready 1", `weft_agent_workers{state="running"} 2`, "weft_agent_world_size 2", "weft_agent_failures_total 0", "weft_agent_rendezvous_connected 1"} {
		require.Contains(t, text, "\n"+line+"\n")
	}
	require.Eventually(t, func() bool { // the leader's first word comes about when its first worker starts
		_, text = get(t, url+"/metrics")
		return strings.Contains(text, "\nweft_agent_rendezvous_nodes 1\n") && strings.Contains(text, "\nweft_agent_rendezvous_round 0\n")
	}, 20*time.Second, 5*time.Millisecond)
	require.Regexp(t, `\nweft_agent_rendezvous_last_heard_timestamp_seconds \d\.\d+e\+09\n`, text)
	http.DefaultClient.CloseIdleConnections()
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	for range out {
	}
	require.Error(t, cmd.Wait())
}

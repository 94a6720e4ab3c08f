package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/agent"
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

func TestAnAgentThatWaitsIsWellButNotReadyAndOneThatHasEndedIsNeither(t *testing.T) {
	leak.Check(t)
	probe := agent.NewProbe()
	web, err := serveHealth(":0", probe)
	require.NoError(t, err)
	defer web.close()
	defer http.DefaultClient.CloseIdleConnections()
	require.True(t, web.addr().(*net.TCPAddr).IP.IsLoopback(), "without a host nobody else sees it")
	url := "http://" + web.addr().String()
	code, text := get(t, url+"/healthz")
	require.Equal(t, 200, code)
	require.Equal(t, "waits for a place in the job\n", text)
	code, _ = get(t, url+"/readyz")
	require.Equal(t, 503, code)
	_, err = agent.Run(t.Context(), agent.Spec{Probe: probe}) // it cannot run, and has ended
	require.ErrorIs(t, err, agent.ErrInvalidSpec)
	code, text = get(t, url+"/healthz")
	require.Equal(t, 503, code)
	require.Contains(t, text, "does not run any more")
	_, text = get(t, url+"/metrics")
	require.Contains(t, text, "weft_agent_up 0\n")
	_, err = serveHealth(web.addr().String(), probe)
	require.ErrorContains(t, err, "--health-addr: listen tcp")
}

func TestTheAgentsMetricsAreListed(t *testing.T) {
	page, err := os.ReadFile("../../docs/launching.md")
	require.NoError(t, err)
	all := make(chan *prometheus.Desc, 64)
	newAgentCollector(agent.NewProbe()).Describe(all)
	close(all)
	names := regexp.MustCompile(`fqName: "(\w+)"`)
	for d := range all {
		require.Regexp(t, "`"+names.FindStringSubmatch(d.String())[1]+"[`{]", string(page))
	}
}

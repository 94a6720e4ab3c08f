package run

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/internal/leak"
)

func TestAnAgentThatWaitsIsWellButNotReadyAndOneThatHasEndedIsNeither(t *testing.T) {
	leak.Check(t)
	probe := agent.NewProbe()
	web, err := serveHealth(":0", probe)
	require.NoError(t, err)
	defer web.Close()
	defer http.DefaultClient.CloseIdleConnections()
	require.True(t, web.Addr().(*net.TCPAddr).IP.IsLoopback(), "without a host nobody else sees it")
	url := "http://" + web.Addr().String()
	code, text := answer(t, url+"/healthz")
	require.Equal(t, 200, code)
	require.Equal(t, "waits for a place in the job\n", text)
	code, _ = answer(t, url+"/readyz")
	require.Equal(t, 503, code)
	_, err = agent.Run(t.Context(), agent.Spec{Probe: probe}) // it cannot run, and has ended
	require.ErrorIs(t, err, agent.ErrInvalidSpec)
	code, text = answer(t, url+"/healthz")
	require.Equal(t, 503, code)
	require.Contains(t, text, "does not run any more")
	_, text = answer(t, url+"/metrics")
	require.Contains(t, text, "weft_agent_up 0\n")
	_, err = serveHealth(web.Addr().String(), probe)
	require.ErrorContains(t, err, "--health-addr: listen tcp")
}

func TestTheAgentsMetricsAreListed(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/launching.md")
	require.NoError(t, err)
	all := make(chan *prometheus.Desc, 64)
	newAgentCollector(agent.NewProbe()).Describe(all)
	close(all)
	names := regexp.MustCompile(`fqName: "(\w+)"`)
	for d := range all {
		require.Regexp(t, "`"+names.FindStringSubmatch(d.String())[1]+"[`{]", string(page))
	}
}

func TestSilentAndSlowConnectionsKeepNoProbeFromAnAgentsHealth(t *testing.T) {
	leak.Check(t)
	web, err := serveHealth("127.0.0.1:0", agent.NewProbe())
	require.NoError(t, err)
	defer web.Close()
	for i := range 1000 {
		conn, err := net.Dial("tcp", web.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		if i%2 == 0 {
			_, _ = conn.Write([]byte("GET /healthz HTTP/1.1\r\nHost: a")) // and no more; it may have had to go
		}
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range 5 {
		resp, err := client.Get(fmt.Sprintf("http://%s/healthz", web.Addr()))
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
	}
}

func answer(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

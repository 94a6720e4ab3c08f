package web

import (
	"bufio"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/soak"
)

func TestPlacesForHTTPAreBoundedAndGoToWhoAsks(t *testing.T) {
	for range soak.Cases(200) {
		w := &places{most: 1 + rand.IntN(8), perHost: 1 + rand.IntN(4)}
		served := map[*place]bool{}
		host := func(i int) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 32) }
		for range 60 {
			if all := w.taken; len(all) > 0 && rand.IntN(3) == 0 {
				p := all[rand.IntN(len(all))]
				served[p] = !p.serving
				w.answers(p, served[p])
				continue
			}
			p := &place{host: host(rand.IntN(4))}
			goes := w.enter(p)
			require.LessOrEqual(t, len(w.taken), w.most)
			of := map[netip.Prefix]int{}
			idle := false
			for _, t := range w.taken {
				of[t.host]++
				idle = idle || t.host == p.host && !t.serving && t != p
			}
			require.LessOrEqual(t, of[p.host], w.perHost)
			if goes == nil {
				continue
			}
			require.False(t, served[goes], "nobody goes who is being answered")
			require.False(t, slices.Contains(w.taken, goes))
			if goes == p {
				require.False(t, idle, "it has a place if one of its host's is idle")
			}
		}
	}
	lone := &place{host: netip.MustParsePrefix("10.9.9.9/32")}
	w := &places{most: 4, perHost: 4}
	for range 9 {
		w.enter(&place{host: netip.MustParsePrefix("10.0.0.1/32")})
	}
	require.NotSame(t, lone, w.enter(lone), "a crowd of one host keeps no other out")
	require.Equal(t, "2001:db8::/64", hostOf(&net.TCPAddr{IP: net.ParseIP("2001:db8::7")}).String())
	require.Equal(t, "10.0.0.7/32", hostOf(&net.TCPAddr{IP: net.ParseIP("10.0.0.7")}).String())
}

func TestARequestWithEndlessHeadersIsRefused(t *testing.T) {
	leak.Check(t)
	server, err := Serve("127.0.0.1:0", http.NotFoundHandler())
	require.NoError(t, err)
	defer server.Close()
	conn, err := net.Dial("tcp", server.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: a\r\nX: "+strings.Repeat("x", 1<<20)) // the server hangs up meanwhile
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil { // else the answer was lost with the connection
		require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
	}
	require.NotZero(t, server.http.ReadTimeout)
	require.NotZero(t, server.http.WriteTimeout)
	require.NotZero(t, server.http.IdleTimeout)
}
